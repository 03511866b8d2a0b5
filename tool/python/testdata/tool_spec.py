TOOL_SPEC = {
    "id": "react.delegate",
    "tool_traits": {
        "strategy": ["neutral"],
        "execution": {
            "trigger": "tool_call_complete",
            "concurrency": "parallel_with_generation",
            "result_dependency": "detached",
            "replay": "at_most_once_per_round",
        },
    },
    # purpose, params, and other catalog fields...
}
