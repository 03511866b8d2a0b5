import os
from semantic_kernel.functions import kernel_function
import a_package_that_is_not_there


@kernel_function(name="tool", description="Could be told without importing")
def tool(x: int) -> int:
    return x
