#!/usr/bin/env python3
"""A harness that has each of its tool calls admitted by Writ before it has any effect. Standard library, Python >= 3.9.

    writ serve -c examples/portal.yaml
    python3 examples/harness-python/harness.py --url 'http://127.0.0.1:8720/?token=...' --tool 'curl -sf https://example.org'

The tool is a command: exit code 0 is succeeded, another one failed, and one that does not end in time is unknown.
"""
import argparse
import json
import os
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid


class Refused(Exception):
    """The server answered with an HTTP error: the request did not reach the port."""


class Server:
    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        self.base = f"{parts.scheme}://{parts.netloc}"
        self.token = urllib.parse.parse_qs(parts.query).get("token", [os.environ.get("WRIT_TOKEN", "")])[0]

    def call(self, path, body, token=None, tries=1, **headers):
        """Sends one request. More than one try is for what may be sent again: everything but dispatch."""
        data = json.dumps(body or {}).encode()
        headers.update({"Authorization": "Bearer " + (token or self.token), "Content-Type": "application/json"})
        while True:
            tries -= 1
            try:
                request = urllib.request.Request(self.base + path, data=data, headers=headers, method="POST")
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as err:
                fault = err.read().decode(errors="replace")
                if err.code < 500 or tries <= 0:
                    raise Refused(f"{path}: {err.code}: {fault}") from None
            except OSError:
                if tries <= 0:
                    raise
            time.sleep(1)

    def open(self, participant, lease_seconds=300):
        key = str(uuid.uuid4())  # the same for every try, so that a lost answer opens nothing twice
        path = f"/v1/participants/{urllib.parse.quote(participant, safe='')}/invocations"
        return Port(self, self.call(path, {"lease_seconds": lease_seconds}, tries=5, **{"Idempotency-Key": key}))


class Port:
    """The admission port of one invocation, with the methods and the values of the article."""

    def __init__(self, server, opened):
        self._server, self._token, self.bindings = server, opened["invocation_token"], opened["bindings"]
        for name in ("invocation_action_instance_id", "participant_address", "episode_id", "participant_implementation_ref",
                     "execution_scope_ref", "execution_generation", "observation_point"):
            setattr(self, name, opened[name])

    def _call(self, method, body, tries=5):
        return self._server.call(f"/v1/invocations/{self.invocation_action_instance_id}/{method}", body, self._token, tries)

    def admit(self, **request):
        return self._call("admit", request)

    def dispatch(self, action):
        return self._call("dispatch", {"action_instance_id": action}, tries=1)

    def complete(self, action, result):
        return self._call("complete", {"action_instance_id": action, "result": result}, tries=60)

    def report_unknown(self, action, reason):
        return self._call("report_unknown", {"action_instance_id": action, "reason": reason})

    def renew(self, lease_seconds=300):
        return self._call("renew", {"lease_seconds": lease_seconds})

    def close(self, status=None, failure_class=None):
        return self._call("close", {k: v for k, v in {"status": status, "failure_class": failure_class}.items() if v})


def call_tool(port, mcp_request_id, binding, run_tool):
    """The article's loop: ask, start, run, tell. What it returns is what the ledger answered."""
    decision = port.admit(
        tool_call_id=mcp_request_id,
        invocation_action_instance_id=port.invocation_action_instance_id,
        participant_address=port.participant_address,
        episode_id=port.episode_id,
        participant_implementation_ref=port.participant_implementation_ref,
        tool_affordance_address=binding["tool_affordance_address"],
        action_contract_address=binding["action_contract_address"],
        observation_boundary_address=binding["observation_boundary_addresses"][0],
        target_addresses=binding["target_addresses"],
        execution_scope_ref=port.execution_scope_ref,
        execution_generation=port.execution_generation,
    )
    if not decision["admitted"]:
        return {"said": "refused", **decision}  # decision["refusal"] is a fixed code; do not run the tool.
    action = decision["action_instance_id"]

    def result(status, **more):
        return {"status": status, "participant_address": port.participant_address, "episode_id": port.episode_id,
                "action_instance_id": action, "action_contract_address": binding["action_contract_address"],
                "observation_point": port.observation_point, **more}

    try:
        grant = port.dispatch(action)
    except OSError:  # the answer is lost, and with it the one permission: nothing was started, and nothing may be
        return {"said": "not started", "action_instance_id": action, **port.complete(action, result("failed", failure_class="interrupted"))}
    if not grant["accepted"]:
        return {"said": "not started", **grant}
    try:
        succeeded = run_tool(grant["idempotency_key"])
    except TimeoutError:
        return {"said": "unknown", "action_instance_id": action, **port.report_unknown(action, "timeout")}
    status = "succeeded" if succeeded else "failed"
    return {"said": status, "action_instance_id": action, **port.complete(action, result(status))}


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--url", required=True, help="what writ serve printed; or without ?token=, and the token in WRIT_TOKEN")
    args.add_argument("--participant", default="shopper")
    args.add_argument("--contract", default="probe-customer-portal-login", help="name of the action contract of the tool")
    args.add_argument("--tool", default="true", help="command to run as the tool; it gets WRIT_IDEMPOTENCY_KEY")
    args.add_argument("--timeout", type=float, default=20, help="seconds that the tool may take")
    args.add_argument("--calls", type=int, default=1)
    args = args.parse_args()

    def run_tool(key):
        try:
            return subprocess.run(shlex.split(args.tool), timeout=args.timeout, stdout=subprocess.DEVNULL,
                                  env={**os.environ, "WRIT_IDEMPOTENCY_KEY": key}).returncode == 0
        except subprocess.TimeoutExpired:
            raise TimeoutError from None

    port = Server(args.url).open(args.participant)
    binding = next(b for b in port.bindings if b["action_contract_address"].endswith("." + args.contract))
    good = True
    for i in range(args.calls):
        port.renew()
        answer = call_tool(port, f"n:{i + 1}", binding, run_tool)
        good = good and answer["said"] == "succeeded" and answer.get("accepted", False)
        print(json.dumps(answer), flush=True)
    closed = port.close("succeeded") if good else port.close("failed", "tool_error")
    print(json.dumps({"said": "closed", "invocation": port.invocation_action_instance_id, "state": closed["state"],
                      "states": [op["state"] for op in closed["operations"]]}), flush=True)


if __name__ == "__main__":
    try:
        main()
    except Refused as err:
        sys.exit(f"harness: {err}")
