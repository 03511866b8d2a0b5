package runtime

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"writ"
	"writ/admission"
	"writ/internal/timeline"
	"writ/store"
)

// fill puts a tool's content into a result. A text larger than the agent shows goes to the workspace whole; the result
// keeps its beginning and the ref.
func (t *turn) fill(out *timeline.Result, content []writ.Content) {
	limit, left := t.in.Agent.MaxResultChars, t.in.Agent.MaxResultChars
	kept := make([]writ.Content, 0, len(content))
	for i, c := range content {
		data, ext := []byte(c.Text), "txt"
		switch c.Kind {
		case writ.ContentJSON:
			data, ext = c.JSON, "json"
		case writ.ContentText:
		case writ.ContentBlob:
			kept = append(kept, t.blob(out, i, c))
			continue
		default:
			kept = append(kept, c)
			continue
		}
		n := utf8.RuneCount(data)
		if n <= left {
			left -= n
			kept = append(kept, c)
			continue
		}
		if left < limit { // there is no room beside the parts before it: the rest goes as one file
			kept = append(kept, t.rest(out, content[i:]))
			break
		}
		left = 0
		ref, err := t.ws.Offload(out.ToolCallID+"."+ext, data)
		if err != nil {
			ref = "(it could not be stored: " + err.Error() + ")"
		} else if out.Ref == "" {
			out.Ref = ref
		}
		head := clip(strings.ToValidUTF8(string(data[:min(len(data), limit)]), "\uFFFD"), limit/2)
		kept = append(kept, writ.Content{Kind: writ.ContentText, Text: fmt.Sprintf("%s\n[%d bytes in all; this is the beginning. The whole is at %s; read parts of it with react.read]", head, len(data), ref)})
	}
	out.Content = timeline.Store(kept)
}

// rest stores the parts that are more than a result may show, as one file.
func (t *turn) rest(out *timeline.Result, parts []writ.Content) writ.Content {
	var b strings.Builder
	for i, c := range parts {
		switch c.Kind {
		case writ.ContentText:
			b.WriteString(c.Text)
		case writ.ContentJSON:
			b.Write(c.JSON)
		case writ.ContentBlob: // its bytes get a file of their own
			ref, err := t.ws.Offload(fmt.Sprintf("%s.rest%d.bin", out.ToolCallID, i), c.Data)
			if err != nil {
				ref = "could not be stored: " + err.Error()
			}
			fmt.Fprintf(&b, "(%s %s, %d bytes: %s)", c.MIME, c.Name, len(c.Data), ref)
		default:
			fmt.Fprintf(&b, "(%s %s %s %s)", c.Kind, c.MIME, c.Name, c.URI)
		}
		b.WriteByte('\n')
	}
	ref, err := t.ws.Offload(out.ToolCallID+".rest.txt", []byte(b.String()))
	if err != nil {
		ref = "(it could not be stored: " + err.Error() + ")"
	} else if out.Ref == "" {
		out.Ref = ref
	}
	return writ.Content{Kind: writ.ContentText, Text: fmt.Sprintf("[%d more parts, %d bytes, are at %s; read them with react.read]", len(parts), b.Len(), ref)}
}

// inlineBlob bounds the bytes of an image that stand on the timeline itself.
const inlineBlob = 1 << 20

// blob keeps small images inline; everything else binary goes to the workspace.
func (t *turn) blob(out *timeline.Result, i int, c writ.Content) writ.Content {
	if strings.HasPrefix(c.MIME, "image/") && len(c.Data) <= inlineBlob {
		return c
	}
	ref, err := t.ws.Offload(fmt.Sprintf("%s.%d.bin", out.ToolCallID, i), c.Data)
	if err != nil {
		return writ.Content{Kind: writ.ContentText, Text: fmt.Sprintf("(%d bytes of %s could not be stored: %v)", len(c.Data), c.MIME, err)}
	}
	if out.Ref == "" {
		out.Ref = ref
	}
	return writ.Content{Kind: writ.ContentLink, URI: ref, MIME: c.MIME, Name: c.Name}
}

// preview is the beginning of a result, for a person.
func preview(v timeline.Result, most int) string {
	var b strings.Builder
	for _, c := range v.Content {
		switch {
		case b.Len() > most:
		case c.Kind == writ.ContentText:
			b.WriteString(strings.ToValidUTF8(c.Text, "\uFFFD") + " ")
		case c.Kind == writ.ContentJSON:
			b.Write(c.JSON)
			b.WriteByte(' ')
		default:
			fmt.Fprintf(&b, "(%s %s) ", c.Kind, c.MIME)
		}
	}
	s := strings.TrimSpace(b.String())
	if s == "" {
		s = v.Note
	}
	return clip(s, most)
}

// closingBlock is the result of an action that the end of its invocation has settled.
func (t *turn) closingBlock(row store.Action) []store.Block { return t.rt.closingBlock(row) }

// whyWithheld says in words why a held action was not released.
var whyWithheld = map[string]string{
	admission.FailureDeclined:         "a person declined it. Do not ask for the same again unless they say so",
	admission.FailureApprovalExpired:  "nobody approved it in time",
	admission.FailurePolicyChanged:    "the configuration it was approved under has changed since; ask again if it is still needed",
	admission.FailureArgumentsChanged: "its arguments are not those that were approved",
	"tool_unavailable":                "the agent has no such tool any more",
}

func closingResult(row store.Action) timeline.Result {
	out := timeline.Result{Tool: row.Tool, ToolCallID: row.ToolCallID, State: row.State, Failure: row.Failure}
	switch row.State {
	case writ.Withheld:
		out.Note = "not executed: the run ended before it was started"
		if why, ok := whyWithheld[row.Failure]; ok {
			out.Note = why
		}
	case writ.Failed:
		out.Note = "the run ended before an answer came; the tool has no effect"
	case writ.Indeterminate:
		out.Note = "the run ended after it was started and before an answer came"
	}
	return out
}
