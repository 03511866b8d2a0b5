package anthropic

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/param"

	"writ"
	"writ/internal/modelreq"
)

// maxCachePoints is the vendor's limit for one request.
const maxCachePoints = 4

// params renders a request. The same request gives the same bytes.
func (m *Model) params(req *writ.ModelRequest) sdk.MessageNewParams {
	p := sdk.MessageNewParams{Model: sdk.Model(req.Model), MaxTokens: int64(req.MaxTokens)}
	if p.Model == "" {
		p.Model = sdk.Model(m.cfg.Model)
	}
	if p.MaxTokens == 0 {
		p.MaxTokens = int64(m.cfg.MaxTokens)
	}
	if p.MaxTokens == 0 {
		p.MaxTokens = DefaultMaxTokens
	}
	p.OutputConfig.Effort = sdk.OutputConfigEffort(m.cfg.Effort)
	r := &renderer{m: m, tools: req.Dialect != writ.Channel && len(req.Tools) > 0}
	msgs := r.frame(modelreq.Messages(req.Messages))
	m.think(&p, msgs)
	if r.tools {
		for _, t := range req.Tools {
			p.Tools = append(p.Tools, m.tool(t))
		}
		if req.NoTools {
			p.ToolChoice = sdk.ToolChoiceUnionParam{OfNone: &sdk.ToolChoiceNoneParam{}}
		}
	}
	r.spare(req.System, msgs)
	for _, s := range req.System {
		if strings.TrimSpace(s.Text) != "" {
			p.System = append(p.System, sdk.TextBlockParam{Text: s.Text, CacheControl: r.cache(s.Cache)})
		}
	}
	for _, msg := range msgs {
		p.Messages = append(p.Messages, r.message(msg))
	}
	return p
}

// think asks for thinking, unless the model is in the middle of a run of calls that it began without: the vendor then
// wants the thinking that is not there.
func (m *Model) think(p *sdk.MessageNewParams, msgs []writ.Message) {
	budget := int64(m.cfg.ThinkingBudget)
	if budget == 0 {
		return
	}
	for i := len(msgs) - 1; i >= 0; i-- {
		if msgs[i].Role == writ.RoleAssistant {
			if has(msgs[i], writ.PartToolUse) && !has(msgs[i], writ.PartThinking) {
				m.book.Remark("thinking is left out while the last calls were made without it")
				return
			}
			break
		}
	}
	if budget == Adaptive {
		p.Thinking = sdk.ThinkingConfigParamUnion{OfAdaptive: &sdk.ThinkingConfigAdaptiveParam{Display: sdk.ThinkingConfigAdaptiveDisplaySummarized}}
		return
	}
	if p.MaxTokens <= budget {
		p.MaxTokens += budget
	}
	p.Thinking = sdk.ThinkingConfigParamOfEnabled(budget)
}

func has(m writ.Message, kind writ.PartKind) bool {
	for i := range m.Parts {
		if m.Parts[i].Kind == kind {
			return true
		}
	}
	return false
}

func (m *Model) tool(t writ.ToolDef) sdk.ToolUnionParam {
	description, schema := m.book.Tool(t)
	tool := sdk.ToolParam{Name: t.Name, InputSchema: param.Override[sdk.ToolInputSchemaParam](schema.JSON)}
	if description != "" {
		tool.Description = param.NewOpt(description)
	}
	return sdk.ToolUnionParam{OfTool: &tool}
}

// renderer makes the vendor's messages of one request.
type renderer struct {
	m     *Model
	tools bool
	drop  int // cache points of messages to leave out, from the front
}

// frame makes the conversation begin and end with the person, as the vendor wants it, and puts thinking in its place.
func (r *renderer) frame(msgs []writ.Message) []writ.Message {
	var out []writ.Message
	for _, m := range msgs {
		if m.Role == writ.RoleAssistant {
			m.Parts = modelreq.Interleave(r.own(m.Parts), place)
		}
		if len(m.Parts) > 0 {
			out = append(out, m)
		}
	}
	if n := len(out); n == 0 || out[n-1].Role == writ.RoleAssistant {
		out = append(out, text(writ.RoleUser, "(go on)"))
		r.m.book.Remark("a conversation that ended with the model's own words got a line of the person's")
	}
	if out[0].Role == writ.RoleAssistant {
		out = append([]writ.Message{text(writ.RoleUser, "(the conversation goes on)")}, out...)
		r.m.book.Remark("a conversation that began with the model's own words got a line of the person's")
	}
	return out
}

func text(role writ.Role, s string) writ.Message {
	return writ.Message{Role: role, Parts: []writ.Part{{Kind: writ.PartText, Text: s}}}
}

// own keeps the thinking that this vendor has signed: no other can be sent back to it.
func (r *renderer) own(parts []writ.Part) []writ.Part {
	var out []writ.Part
	for _, p := range parts {
		if p.Kind == writ.PartThinking && signed(&p) == (opaque{}) {
			r.m.book.Remark("thinking without a signature of this vendor is not sent back")
			continue
		}
		out = append(out, p)
	}
	return out
}

// signed reads a part's signature; the zero value means that it has none.
func signed(p *writ.Part) opaque {
	var o opaque
	if json.Unmarshal(p.Opaque, &o.Signature) == nil {
		return o
	}
	o = opaque{}
	if json.Unmarshal(p.Opaque, &o) != nil || o.Signature == "" && o.Redacted == "" {
		return opaque{}
	}
	return o
}

func place(p *writ.Part) modelreq.Place { return signed(p).After }

// spare counts the cache points; the system's stay, and the earliest of the messages' give way.
func (r *renderer) spare(system []writ.Part, msgs []writ.Message) {
	n := 0
	for _, s := range system {
		if s.Cache && strings.TrimSpace(s.Text) != "" {
			n++
		}
	}
	for _, m := range msgs {
		for i := range m.Parts {
			if m.Parts[i].Cache {
				n++
			}
		}
	}
	r.drop = max(n-maxCachePoints, 0)
}

func (r *renderer) cache(on bool) sdk.CacheControlEphemeralParam {
	if !on {
		return sdk.CacheControlEphemeralParam{}
	}
	c := sdk.NewCacheControlEphemeralParam()
	c.TTL = sdk.CacheControlEphemeralTTL(r.m.cfg.CacheTTL)
	return c
}

func (r *renderer) message(msg writ.Message) sdk.MessageParam {
	var blocks, after []sdk.ContentBlockParamUnion
	for i := range msg.Parts {
		p := &msg.Parts[i]
		if p.Kind != writ.PartToolResult {
			blocks, after = append(blocks, after...), nil
		}
		on := p.Cache
		if on && r.drop > 0 {
			r.drop--
			on = false
		}
		got, more := r.part(p)
		blocks, after = append(blocks, got...), append(after, more...)
		if on {
			mark(blocks, r.cache(true))
		}
	}
	blocks = append(blocks, after...)
	if msg.Role == writ.RoleAssistant {
		return sdk.NewAssistantMessage(blocks...)
	}
	return sdk.NewUserMessage(blocks...)
}

// mark sets the cache point on the last block that can carry one; thinking cannot.
func mark(blocks []sdk.ContentBlockParamUnion, c sdk.CacheControlEphemeralParam) {
	for i := len(blocks) - 1; i >= 0; i-- {
		if cc := blocks[i].GetCacheControl(); cc != nil {
			*cc = c
			return
		}
	}
}

// part renders one part. after holds what may only follow the message's tool results.
func (r *renderer) part(p *writ.Part) (blocks, after []sdk.ContentBlockParamUnion) {
	one := func(b sdk.ContentBlockParamUnion) []sdk.ContentBlockParamUnion {
		return []sdk.ContentBlockParamUnion{b}
	}
	switch p.Kind {
	case writ.PartThinking:
		o := signed(p)
		if o.Redacted != "" {
			return one(sdk.NewRedactedThinkingBlock(o.Redacted)), nil
		}
		return one(sdk.NewThinkingBlock(o.Signature, p.Text)), nil
	case writ.PartBlob:
		return one(blob(p.MIME, p.Name, p.Data)), nil
	case writ.PartToolUse:
		if !r.tools {
			return one(sdk.NewTextBlock(fmt.Sprintf("[called %s] %s", p.Name, p.Args))), nil
		}
		return one(sdk.NewToolUseBlock(p.ID, modelreq.Args(p.Args), p.Name)), nil
	case writ.PartToolResult:
		return r.result(p)
	}
	return one(sdk.NewTextBlock(p.Text)), nil
}

func blob(mime, name string, data []byte) sdk.ContentBlockParamUnion {
	switch modelreq.MediumOf(mime, data) {
	case modelreq.Image:
		return sdk.NewImageBlockBase64(modelreq.BaseMIME(mime), base64.StdEncoding.EncodeToString(data))
	case modelreq.PDF:
		b := sdk.NewDocumentBlock(sdk.Base64PDFSourceParam{Data: base64.StdEncoding.EncodeToString(data)})
		if name != "" {
			b.OfDocument.Title = param.NewOpt(name)
		}
		return b
	case modelreq.Text:
		if strings.TrimSpace(string(data)) != "" {
			return sdk.NewTextBlock(string(data))
		}
	}
	return sdk.NewTextBlock(modelreq.Note(mime, name, len(data)))
}

// result renders a call's result. The vendor takes nothing but text in an error's result: an image goes after it.
func (r *renderer) result(p *writ.Part) (blocks, after []sdk.ContentBlockParamUnion) {
	res := sdk.ToolResultBlockParam{ToolUseID: p.ID}
	if p.IsError {
		res.IsError = param.NewOpt(true)
	}
	say := func(s string) {
		if strings.TrimSpace(s) != "" {
			res.Content = append(res.Content, sdk.ToolResultBlockParamContentUnion{OfText: &sdk.TextBlockParam{Text: s}})
		}
	}
	for i := range p.Content {
		c := &p.Content[i]
		if s, plain := modelreq.Plain(c); plain {
			say(s)
			continue
		}
		b := blob(c.MIME, c.Name, c.Data)
		switch {
		case p.IsError || !r.tools:
			ref := fmt.Sprintf("(%s %d of the result of call %s)", modelreq.BaseMIME(c.MIME), i+1, p.ID)
			say(ref)
			after = append(after, sdk.NewTextBlock(ref), b)
		case b.OfImage != nil:
			res.Content = append(res.Content, sdk.ToolResultBlockParamContentUnion{OfImage: b.OfImage})
		case b.OfDocument != nil:
			res.Content = append(res.Content, sdk.ToolResultBlockParamContentUnion{OfDocument: b.OfDocument})
		}
	}
	if len(res.Content) == 0 {
		say(modelreq.NoContent)
	}
	if r.tools {
		return []sdk.ContentBlockParamUnion{{OfToolResult: &res}}, after
	}
	for _, c := range res.Content { // no tools are defined: the vendor takes no tool blocks
		blocks = append(blocks, sdk.NewTextBlock("[result] "+c.OfText.Text))
	}
	return blocks, after
}
