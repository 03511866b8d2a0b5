package prompt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"writ"
	"writ/internal/stream"
)

// Tool is one catalog entry: what the model reads of a tool. Traits is the same record that the runtime enforces.
type Tool struct {
	ID          string
	Name        string // the vendor-safe name, native dialect
	Description string
	Schema      json.RawMessage
	Traits      writ.Traits
	Namespaces  map[string]writ.Traits // sorted by key when rendered
	CodeParam   string
}

// BuildKit renders the cached part of every request of a turn. Tools come sorted by id. additional is appended once,
// verbatim, at the end.
func BuildKit(d writ.Dialect, tools []Tool, additional string) Kit {
	var b strings.Builder
	var kit Kit
	if d == writ.Native {
		b.WriteString(nativeProtocol)
		kit.names = make(map[string]string, len(tools))
		for _, t := range tools {
			kit.names[t.ID] = t.Name
			kit.Tools = append(kit.Tools, writ.ToolDef{Name: t.Name, Description: strings.TrimSpace(t.Description + "\n\n" + scope(t)), Schema: t.Schema})
		}
	} else {
		b.WriteString(channelProtocol)
		catalog(&b, tools)
	}
	if additional != "" {
		b.WriteString("\n\n# Instructions\n\n")
		b.WriteString(additional)
	}
	kit.System = b.String()
	kit.seal(d)
	return kit
}

// catalog lists the tools. What a tool says of itself is quoted text: it is escaped, so that a server's description
// holds no tag either.
func catalog(b *strings.Builder, tools []Tool) {
	if len(tools) == 0 {
		b.WriteString("\n\n# Tools\n\nThere are no tools. Answer from what you know.")
		return
	}
	ids := make([]string, len(tools))
	for i, t := range tools {
		ids[i] = t.ID
	}
	fmt.Fprintf(b, "\n\n# Tools\n\n%d tools: %s", len(tools), stream.Escape(strings.Join(ids, ", ")))
	for _, t := range tools {
		b.WriteString(stream.Escape(fmt.Sprintf("\n\n## %s\n%s\n\n%s\nParameters: %s", t.ID, strings.TrimSpace(t.Description), scope(t), compact(t.Schema))))
		if t.CodeParam != "" {
			fmt.Fprintf(b, "\nThe parameter %q is given in a <channel:code> block right after the action.", t.CodeParam)
		}
	}
}

// scope is the text of `writ check` too.
func scope(t Tool) string {
	var b strings.Builder
	b.WriteString("Scope:\n")
	b.WriteString(strings.Join(t.Traits.ScopeLines(), "\n"))
	for _, ns := range sortedKeys(t.Namespaces) {
		fmt.Fprintf(&b, "\n- strategy in namespace %s: %s", ns, t.Namespaces[ns].Strategy)
	}
	return b.String()
}

func compact(schema json.RawMessage) string {
	if len(schema) == 0 {
		return `{"type":"object"}`
	}
	var out bytes.Buffer
	if json.Compact(&out, schema) != nil {
		return string(schema)
	}
	return out.String()
}

const channelProtocol = `# Protocol

You work in rounds. In each round you write channels and nothing outside them:

<channel:thinking>why you do what comes next; short</channel:thinking>
<channel:action>{"action":"call_tool","notes":"one line for the person","tool_call":{"tool_id":"alias.name","params":{}}}</channel:action>
<channel:action>{"action":"complete","final_answer":"your answer","suggested_followups":[]}</channel:action>

- Start with <channel:thinking>. Then write one or more <channel:action> blocks, each with exactly one JSON object.
- "action" is call_tool, complete (final_answer required) or exit (final_answer optional). Write "action" first and "tool_id" before "params".
- Actions are judged in the order you write them. All calls of a round are written before any of them has run: no action may use the result of another one of the same round. Use it in the next round.
- Each tool has a strategy. exploration obtains information, exploitation changes something, neutral is independent bookkeeping, unknown runs alone. After an exploration no exploitation may follow in the same round. A tool with several strategies is judged as all of them. A final answer may stand beside neutral calls only.
- An action that is refused did not happen. You are told why; decide anew in the next round.
- A result says what really happened: succeeded, failed, not executed, or unknown. Unknown means that it may have happened: find out before you ask for it again.
- The last message of the prompt, ANNOUNCE, says what is true now. It overrides what was said before.`

const nativeProtocol = `# Protocol

You work in rounds: you write text and tool calls, the runtime runs the calls, you see their results in the next round.

- Calls are judged in the order you write them. All calls of a round are written before any of them has run: no call may use the result of another one of the same round. Use it in the next round.
- Each tool has a strategy, in its description under Scope. exploration obtains information, exploitation changes something, neutral is independent bookkeeping, unknown runs alone. After an exploration no exploitation may follow in the same round. A tool with several strategies is judged as all of them.
- Text without calls, or beside neutral calls only, is your answer to the person. Text beside other calls is a note.
- A call that is refused did not happen. You are told why; decide anew in the next round.
- A result says what really happened: succeeded, failed, not executed, or unknown. Unknown means that it may have happened: find out before you ask for it again.
- The last message of the prompt, ANNOUNCE, says what is true now. It overrides what was said before.`
