// Package modelreq is what the model adapters share of making a request: the order of parts that every vendor wants,
// the text that stands for what a vendor cannot take, and the mending of tool schemas.
package modelreq

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"writ"
)

// NoContent stands where a vendor wants content and there is none.
const NoContent = "(no content)"

// Messages joins adjacent messages of one role, puts tool results before anything else of their message, and drops
// texts without a visible character. A cache point on a dropped text moves to the part before it.
func Messages(in []writ.Message) []writ.Message {
	var out []writ.Message
	for _, m := range in {
		if n := len(out); n > 0 && out[n-1].Role == m.Role {
			out[n-1].Parts = append(out[n-1].Parts, m.Parts...)
			continue
		}
		out = append(out, writ.Message{Role: m.Role, Parts: append([]writ.Part(nil), m.Parts...)})
	}
	for i := range out {
		out[i].Parts = tidy(out[i])
	}
	return out
}

func tidy(m writ.Message) []writ.Part {
	var kept []writ.Part
	for _, p := range m.Parts {
		if p.Kind == writ.PartText && strings.TrimSpace(p.Text) == "" {
			if p.Cache && len(kept) > 0 {
				kept[len(kept)-1].Cache = true
			}
			continue
		}
		kept = append(kept, p)
	}
	if m.Role != writ.RoleUser {
		return kept
	}
	var results, rest []writ.Part
	for _, p := range kept {
		if p.Kind == writ.PartToolResult {
			results = append(results, p)
		} else {
			rest = append(rest, p)
		}
	}
	return append(results, rest...)
}

// Place says where a thinking block stood among the other blocks of its message, which the timeline keeps apart from
// it: after so many calls, and whether after some text.
type Place struct {
	Calls int  `json:"calls,omitempty"`
	Text  bool `json:"text,omitempty"`
}

// Interleave puts the thinking of an assistant's message back where it stood. place reads a part's own place. Vendors
// check a block of thinking together with what follows it, so thinking that nothing follows is left out.
func Interleave(parts []writ.Part, place func(*writ.Part) Place) []writ.Part {
	var thinking, rest, out []writ.Part
	for _, p := range parts {
		if p.Kind == writ.PartThinking {
			thinking = append(thinking, p)
		} else {
			rest = append(rest, p)
		}
	}
	calls, text := 0, false
	for _, p := range rest {
		for len(thinking) > 0 {
			at := place(&thinking[0])
			if at.Calls > calls || at.Text && !text && p.Kind == writ.PartText {
				break
			}
			out = append(out, thinking[0])
			thinking = thinking[1:]
		}
		out = append(out, p)
		text = text || p.Kind == writ.PartText
		if p.Kind == writ.PartToolUse {
			calls++
		}
	}
	return out
}

// Medium is how a blob can be shown to a model.
type Medium int

// Media.
const (
	Other Medium = iota // a note that it is there
	Image
	PDF
	Text // its own characters
)

// maxBlob bounds what is sent inline, before base64; the vendors' limits for one image are about this.
const maxBlob = 5 << 20

// MediumOf sorts a blob by its type and size.
func MediumOf(mime string, data []byte) Medium {
	base, _, _ := strings.Cut(strings.ToLower(mime), ";")
	base = strings.TrimSpace(base)
	switch {
	case len(data) == 0 || len(data) > maxBlob:
		return Other
	case base == "image/png", base == "image/jpeg", base == "image/gif", base == "image/webp":
		return Image
	case base == "application/pdf":
		return PDF
	case (strings.HasPrefix(base, "text/") || base == "application/json" || base == "application/xml" || base == "application/yaml") && utf8.Valid(data):
		return Text
	}
	return Other
}

// BaseMIME is the type without parameters, in lower case.
func BaseMIME(mime string) string {
	base, _, _ := strings.Cut(strings.ToLower(mime), ";")
	return strings.TrimSpace(base)
}

// Note is the text that stands for a blob that cannot be shown.
func Note(mime, name string, size int) string {
	if mime == "" {
		mime = "unknown type"
	}
	if name != "" {
		return fmt.Sprintf("(%s, %s, %d bytes, not shown)", name, mime, size)
	}
	return fmt.Sprintf("(%s, %d bytes, not shown)", mime, size)
}

// Plain is the text of a result's content, and false for a blob that the vendor may show in its own form.
func Plain(c *writ.Content) (string, bool) {
	switch c.Kind {
	case writ.ContentText:
		return c.Text, true
	case writ.ContentJSON:
		return string(c.JSON), true
	case writ.ContentLink:
		s := "(link " + c.URI
		if c.Name != "" {
			s += ", " + c.Name
		}
		if c.MIME != "" {
			s += ", " + c.MIME
		}
		return s + ")", true
	}
	switch MediumOf(c.MIME, c.Data) {
	case Image, PDF:
		return "", false
	case Text:
		return string(c.Data), true
	}
	return Note(c.MIME, c.Name, len(c.Data)), true
}
