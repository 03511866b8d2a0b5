from semantic_kernel.functions import kernel_function


@kernel_function
def broken(:
    pass
