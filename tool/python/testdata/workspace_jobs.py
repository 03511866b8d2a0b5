from typing import Annotated

from semantic_kernel.functions import kernel_function

from kdcube_ai_app.apps.chat.sdk.runtime.tool_traits import tool_trait


@tool_trait(strategy=["exploration"])
@kernel_function(name="search", description="Search application knowledge")
async def search(
    query: Annotated[str, "Search query"],
) -> dict:
    ...


@tool_trait(
    strategy=["neutral"],
    execution={
        "trigger": "tool_call_complete",
        "concurrency": "parallel_with_generation",
        "result_dependency": "detached",
        "replay": "at_most_once_per_round",
    },
)
@kernel_function(
    name="launch_background_job",
    description="Schedule an independent background job",
)
async def launch_background_job(
    assignment: Annotated[str, "Self-contained assignment"],
) -> dict:
    ...
