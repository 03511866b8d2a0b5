import asyncio

from semantic_kernel.functions import kernel_function


async def _prepare():
    await asyncio.sleep(0)
    return 42

# Legal only where no event loop runs.
VALUE = asyncio.run(_prepare())


@kernel_function(name="value", description="What the import computed")
async def value() -> int:
    return VALUE


@kernel_function(name="pool", description="Leaves a thread of the loop's own executor hanging")
async def pool() -> str:
    import threading
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    return "left"
