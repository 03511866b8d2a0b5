"""What parsing cannot tell, importing can."""
import os

from semantic_kernel.functions import kernel_function
from kdcube_ai_app.apps.chat.sdk.runtime.tool_traits import tool_trait

open(os.environ["WRIT_TEST_MARK"], "a").write("imported\n")
WHAT = ["exploration"] if os.environ.get("NOBODY") is None else ["neutral"]


def strategy():
    return ["neutral"]


@tool_trait(strategy=strategy())
@kernel_function(name="computed", description="Its traits are computed")
def computed() -> None:
    pass


@tool_trait(strategy=WHAT)
@kernel_function(name="constant", description="Its traits are a conditional expression")
def constant() -> None:
    pass


@kernel_function(name="same", description="First")
def first() -> None:
    pass


@kernel_function(name="same", description="Second")
def second() -> None:
    pass
