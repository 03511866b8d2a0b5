"""The stand-ins are exactly as wide as they say."""
import importlib

from semantic_kernel.functions import kernel_function


@kernel_function(name="try_import", description="Imports by name")
def try_import(module: str, name: str = "") -> str:
    try:
        m = importlib.import_module(module)
        if name:
            getattr(m, name)
        return "imported"
    except (ImportError, AttributeError) as e:
        return type(e).__name__
