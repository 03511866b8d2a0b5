package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"writ/runtime"
)

const form = `{"q1":{"method":"elicitation/create","params":{"message":"Ship it?\u001b[2J","requestedSchema":{"type":"object","required":["sure"],
	"properties":{"count":{"type":"integer","default":3},"sure":{"type":"boolean"},"to":{"type":"string","enum":["home","work"]}}}}}}`

func TestAskingInTheTerminal(t *testing.T) {
	for _, c := range []struct{ name, typed, want string }{
		{"answered", "5\nyes\nhome\n", `{"q1":{"action":"accept","content":{"count":5,"sure":true,"to":"home"}}}`},
		{"defaults and optional fields", "\nn\n\n", `{"q1":{"action":"accept","content":{"count":3,"sure":false}}}`},
		{"asked again", "many\n5\nperhaps\ny\nmars\nwork\n", `{"q1":{"action":"accept","content":{"count":5,"sure":true,"to":"work"}}}`},
		{"declined", "\n\n", `{"q1":{"action":"decline"}}`},
		{"the input ends", "5\n", `{"q1":{"action":"cancel"}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			got, ok := newAsker(strings.NewReader(c.typed), &out).ask(context.Background(), runtime.Question{Tool: "mail.send", Requests: json.RawMessage(form)})
			if !ok || string(got) != c.want {
				t.Errorf("%v %s, want %s\n%s", ok, got, c.want, &out)
			}
			if !strings.Contains(out.String(), "mail.send asks: Ship it?") || strings.Contains(out.String(), "\x1b") {
				t.Errorf("%q", out.String())
			}
		})
	}
	for _, bad := range []string{`[]`, `{"q":{"method":"sampling/createMessage","params":{}}}`} {
		if got, ok := newAsker(strings.NewReader("y\n"), &bytes.Buffer{}).ask(context.Background(), runtime.Question{Requests: json.RawMessage(bad)}); ok {
			t.Errorf("%s was answered: %s", bad, got)
		}
	}
}
