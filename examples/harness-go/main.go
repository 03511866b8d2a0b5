// Command harness-go has a tool call admitted by Writ before it has any effect, over plain net/http. The tool is a
// command: exit code 0 is succeeded, another one failed, and one that does not end in time is unknown.
//
//	writ serve -c examples/portal.yaml
//	go run ./examples/harness-go -url 'http://127.0.0.1:8720/?token=…' -- curl -sf https://example.org
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"time"
)

// port is the admission port of one invocation: where it is, its token, and the values that each request repeats.
type port struct {
	base     string
	values   map[string]any
	Token    string    `json:"invocation_token"`
	Bindings []binding `json:"bindings"`
}

type binding struct {
	Affordance string   `json:"tool_affordance_address"`
	Contract   string   `json:"action_contract_address"`
	Boundaries []string `json:"observation_boundary_addresses"`
	Targets    []string `json:"target_addresses"`
}

// answer is any answer of the port. Late is an outcome that came too late and is kept beside its action.
type answer struct {
	Admitted, Accepted bool
	Refusal, Code      string
	ActionID           string `json:"action_instance_id"`
	Key                string `json:"idempotency_key"`
	Late               bool   `json:"late_report"`
	State              string
}

// post sends one request, up to tries times: everything but dispatch may be sent again.
func post(target, token, key string, tries int, body, into any) error {
	data, _ := json.Marshal(body) // maps of strings
	for ; ; time.Sleep(time.Second) {
		req, err := http.NewRequest("POST", target, bytes.NewReader(data))
		if err != nil {
			return err
		}
		req.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}}
		if key != "" { // and on nothing else: with it the client itself repeats a request, and a dispatch must not be
			req.Header.Set("Idempotency-Key", key)
		}
		resp, err := http.DefaultClient.Do(req)
		if tries--; err != nil {
			if tries <= 0 {
				return err
			}
			continue
		}
		var got bytes.Buffer
		_, err = got.ReadFrom(resp.Body)
		resp.Body.Close()
		if err == nil && resp.StatusCode == http.StatusOK {
			return json.Unmarshal(got.Bytes(), into)
		}
		if tries <= 0 || err == nil && resp.StatusCode < 500 {
			return fmt.Errorf("%s: %s: %s", target, resp.Status, &got)
		}
	}
}

func open(server, participant string) (*port, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	p := &port{base: u.Scheme + "://" + u.Host + "/v1/"}
	var opened json.RawMessage
	err = post(p.base+"participants/"+url.PathEscape(participant)+"/invocations", u.Query().Get("token"), rand.Text(), 5, struct{}{}, &opened)
	if err != nil {
		return nil, err
	}
	return p, errors.Join(json.Unmarshal(opened, &p.values), json.Unmarshal(opened, p))
}

func (p *port) call(method string, tries int, body any) (a answer, err error) {
	err = post(fmt.Sprint(p.base, "invocations/", p.values["invocation_action_instance_id"], "/", method), p.Token, "", tries, body, &a)
	return a, err
}

// with is the body, and repeats the named values of the port.
func (p *port) with(body map[string]any, names ...string) map[string]any {
	for _, n := range names {
		body[n] = p.values[n]
	}
	return body
}

// callTool is the article's loop: ask, start, run, tell.
func (p *port) callTool(id string, b binding) (answer, error) {
	d, err := p.call("admit", 5, p.with(map[string]any{"tool_call_id": id, "tool_affordance_address": b.Affordance, "action_contract_address": b.Contract,
		"observation_boundary_address": b.Boundaries[0], "target_addresses": b.Targets}, "invocation_action_instance_id", "participant_address",
		"episode_id", "participant_implementation_ref", "execution_scope_ref", "execution_generation"))
	if err != nil || !d.Admitted {
		return d, err // d.Refusal is a fixed code; do not run the tool
	}
	g, err := p.call("dispatch", 1, map[string]any{"action_instance_id": d.ActionID})
	if err == nil && !g.Accepted {
		return g, nil
	}
	result := p.with(map[string]any{"action_instance_id": d.ActionID, "action_contract_address": b.Contract}, "participant_address", "episode_id", "observation_point")
	result["status"] = "failed"
	if err != nil { // the one permission is lost with its answer: nothing was started, and nothing may be
		result["failure_class"] = "interrupted"
	} else if ok, known := run(g.Key); !known {
		return p.call("report_unknown", 5, map[string]any{"action_instance_id": d.ActionID, "reason": "timeout"})
	} else if ok {
		result["status"] = "succeeded"
	}
	return p.call("complete", 60, map[string]any{"action_instance_id": d.ActionID, "result": result})
}

// run is the tool: whether it succeeded, and whether that is known.
func run(key string) (ok, known bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, flag.Arg(0), flag.Args()[1:]...)
	cmd.Env = append(os.Environ(), "WRIT_IDEMPOTENCY_KEY="+key)
	return cmd.Run() == nil, ctx.Err() == nil
}

func main() {
	server := flag.String("url", "", "what writ serve printed")
	flag.Parse()
	p, err := open(*server, "shopper")
	if err != nil {
		log.Fatal("harness: ", err)
	}
	show := func(a answer, err error) { fmt.Printf("%+v %v\n", a, err) }
	show(p.callTool("s:1", p.Bindings[0]))
	show(p.call("close", 5, map[string]string{"status": "succeeded"}))
}
