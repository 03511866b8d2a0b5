package openai

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"writ"
	"writ/internal/modelreq"
)

func (m *Model) model(req *writ.ModelRequest) string {
	if req.Model != "" {
		return req.Model
	}
	return m.cfg.Model
}

func (m *Model) maxTokens(req *writ.ModelRequest) int64 {
	if req.MaxTokens > 0 {
		return int64(req.MaxTokens)
	}
	return int64(m.cfg.MaxTokens)
}

// native reports whether tools are defined.
func native(req *writ.ModelRequest) bool { return req.Dialect != writ.Channel && len(req.Tools) > 0 }

func systemText(req *writ.ModelRequest) string {
	var parts []string
	for _, p := range req.System {
		if strings.TrimSpace(p.Text) != "" {
			parts = append(parts, p.Text)
		}
	}
	return strings.Join(parts, "\n\n")
}

// function is a tool's definition with its schema in the tool's own order of keys, which the SDK's map would sort.
type function struct {
	Type        string          `json:"type,omitempty"`
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      *bool           `json:"strict,omitempty"`
}

func (m *Model) function(t writ.ToolDef) function {
	description, schema := m.book.Tool(t)
	f := function{Name: t.Name, Description: description, Parameters: schema.JSON}
	if schema.Strict {
		f.Strict = &schema.Strict
	}
	return f
}

// maxCallID is the vendor's limit for a call's id.
const maxCallID = 40

// callID keeps an id that the vendor takes and shortens any other; the same id gives the same one.
func callID(id string) string {
	if id != "" && len(id) <= maxCallID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:12])
}

// piece is one piece of what the person says or a tool shows.
type piece struct {
	text   string
	medium modelreq.Medium // Image or PDF; else text
	mime   string
	name   string
	data   []byte
}

func (p *piece) url() string {
	return "data:" + modelreq.BaseMIME(p.mime) + ";base64," + base64.StdEncoding.EncodeToString(p.data)
}

func (p *piece) file() string {
	if p.name == "" {
		return "document.pdf"
	}
	return p.name
}

func blob(mime, name string, data []byte) piece {
	switch k := modelreq.MediumOf(mime, data); k {
	case modelreq.Image, modelreq.PDF:
		return piece{medium: k, mime: mime, name: name, data: data}
	case modelreq.Text:
		return piece{text: string(data)}
	}
	return piece{text: modelreq.Note(mime, name, len(data))}
}

// pieces splits a person's message into the results of calls and everything else. An image in a result goes after all
// results with a reference, because a result is text.
func pieces(parts []writ.Part) (results []writ.Part, texts []string, rest []piece) {
	var later []piece
	for i := range parts {
		p := &parts[i]
		switch p.Kind {
		case writ.PartToolResult:
			text, shown := resultText(p)
			results, texts, rest = append(results, *p), append(texts, text), append(rest, shown...)
		case writ.PartBlob:
			later = append(later, blob(p.MIME, p.Name, p.Data))
		default:
			later = append(later, piece{text: p.Text})
		}
	}
	return results, texts, append(rest, later...)
}

func resultText(p *writ.Part) (string, []piece) {
	var lines []string
	var shown []piece
	for i := range p.Content {
		c := &p.Content[i]
		s, plain := modelreq.Plain(c)
		if !plain {
			s = fmt.Sprintf("(%s %d of the result of call %s)", modelreq.BaseMIME(c.MIME), i+1, callID(p.ID))
			shown = append(shown, piece{text: s}, blob(c.MIME, c.Name, c.Data))
			s = "(see " + s[1:]
		}
		if strings.TrimSpace(s) != "" {
			lines = append(lines, s)
		}
	}
	if len(lines) == 0 {
		lines = []string{modelreq.NoContent}
	}
	return strings.Join(lines, "\n"), shown
}

// plain joins pieces of text; false when there is something else.
func plain(ps []piece) (string, bool) {
	var lines []string
	for i := range ps {
		if ps[i].data != nil {
			return "", false
		}
		lines = append(lines, ps[i].text)
	}
	return strings.Join(lines, "\n\n"), true
}

func (m *Model) chatParams(req *writ.ModelRequest) sdk.ChatCompletionNewParams {
	p := sdk.ChatCompletionNewParams{Model: m.model(req), ReasoningEffort: shared.ReasoningEffort(m.cfg.ReasoningEffort)}
	if n := m.maxTokens(req); n > 0 {
		if m.cfg.BaseURL == "" {
			p.MaxCompletionTokens = param.NewOpt(n)
		} else {
			p.MaxTokens = param.NewOpt(n) // the name that compatible servers know
		}
	}
	if !m.refusedUsage.Load() {
		p.StreamOptions.IncludeUsage = param.NewOpt(true)
	}
	if native(req) {
		for _, t := range req.Tools {
			p.Tools = append(p.Tools, sdk.ChatCompletionFunctionTool(param.Override[shared.FunctionDefinitionParam](m.function(t))))
		}
		if req.NoTools {
			p.ToolChoice.OfAuto = param.NewOpt("none")
		}
	}
	if s := systemText(req); s != "" {
		p.Messages = append(p.Messages, sdk.SystemMessage(s))
	}
	for _, msg := range modelreq.Messages(req.Messages) {
		if msg.Role == writ.RoleAssistant {
			p.Messages = append(p.Messages, m.chatAssistant(msg)...)
			continue
		}
		results, texts, rest := pieces(msg.Parts)
		for i := range results {
			p.Messages = append(p.Messages, sdk.ToolMessage(texts[i], callID(results[i].ID)))
		}
		if len(rest) > 0 {
			p.Messages = append(p.Messages, chatUser(rest))
		}
	}
	return p
}

func chatUser(ps []piece) sdk.ChatCompletionMessageParamUnion {
	if s, ok := plain(ps); ok {
		return sdk.UserMessage(s)
	}
	var out []sdk.ChatCompletionContentPartUnionParam
	for i := range ps {
		switch p := &ps[i]; p.medium {
		case modelreq.Image:
			out = append(out, sdk.ImageContentPart(sdk.ChatCompletionContentPartImageImageURLParam{URL: p.url()}))
		case modelreq.PDF:
			out = append(out, sdk.FileContentPart(sdk.ChatCompletionContentPartFileFileParam{FileData: param.NewOpt(p.url()), Filename: param.NewOpt(p.file())}))
		default:
			out = append(out, sdk.TextContentPart(p.text))
		}
	}
	return sdk.UserMessage(out)
}

// chatAssistant leaves thinking out: this API has no place for it.
func (m *Model) chatAssistant(msg writ.Message) []sdk.ChatCompletionMessageParamUnion {
	var a sdk.ChatCompletionAssistantMessageParam
	var texts []string
	for i := range msg.Parts {
		switch p := &msg.Parts[i]; p.Kind {
		case writ.PartText:
			texts = append(texts, p.Text)
		case writ.PartToolUse:
			call := sdk.ChatCompletionMessageFunctionToolCallParam{ID: callID(p.ID)}
			call.Function.Name, call.Function.Arguments = p.Name, string(modelreq.Args(p.Args))
			a.ToolCalls = append(a.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{OfFunction: &call})
		case writ.PartThinking:
			m.book.Remark("thinking is not sent back: Chat Completions has no place for it")
		}
	}
	if len(texts) > 0 {
		a.Content.OfString = param.NewOpt(strings.Join(texts, "\n\n"))
	}
	if len(texts) == 0 && len(a.ToolCalls) == 0 {
		return nil
	}
	return []sdk.ChatCompletionMessageParamUnion{{OfAssistant: &a}}
}

// encrypted reports whether the model's reasoning is asked for. Models without reasoning refuse the question; their
// names are known, and any other that refuses it is asked once.
func (m *Model) encrypted(req *writ.ModelRequest) bool {
	name := m.model(req)
	if m.refusedInclude.Load() || strings.HasSuffix(name, "-chat-latest") {
		return false
	}
	for _, prefix := range []string{"gpt-3.5", "gpt-4", "chatgpt-"} {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	return true
}

func (m *Model) responsesParams(req *writ.ModelRequest) responses.ResponseNewParams {
	p := responses.ResponseNewParams{Model: m.model(req), Store: param.NewOpt(false)}
	if m.encrypted(req) {
		p.Include = []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent}
	}
	p.Reasoning.Effort = shared.ReasoningEffort(m.cfg.ReasoningEffort)
	p.Reasoning.Summary = shared.ReasoningSummary(m.cfg.ReasoningSummary)
	if n := m.maxTokens(req); n > 0 {
		p.MaxOutputTokens = param.NewOpt(n)
	}
	if s := systemText(req); s != "" {
		p.Instructions = param.NewOpt(s)
	}
	if native(req) {
		for _, t := range req.Tools {
			f := m.function(t)
			f.Type = "function"
			if f.Strict == nil {
				f.Strict = new(bool) // this API's default is strict
			}
			tool := param.Override[responses.FunctionToolParam](f)
			p.Tools = append(p.Tools, responses.ToolUnionParam{OfFunction: &tool})
		}
		if req.NoTools {
			p.ToolChoice.OfToolChoiceMode = param.NewOpt(responses.ToolChoiceOptionsNone)
		}
	}
	for _, msg := range modelreq.Messages(req.Messages) {
		if msg.Role == writ.RoleAssistant {
			p.Input.OfInputItemList = append(p.Input.OfInputItemList, m.outputItems(msg)...)
			continue
		}
		results, texts, rest := pieces(msg.Parts)
		for i := range results {
			out := responses.ResponseInputItemParamOfFunctionCallOutput(texts[i])
			out.OfFunctionCallOutput.CallID = param.NewOpt(callID(results[i].ID))
			p.Input.OfInputItemList = append(p.Input.OfInputItemList, out)
		}
		if len(rest) > 0 {
			p.Input.OfInputItemList = append(p.Input.OfInputItemList, responsesUser(rest))
		}
	}
	return p
}

func responsesUser(ps []piece) responses.ResponseInputItemUnionParam {
	if s, ok := plain(ps); ok {
		return responses.ResponseInputItemParamOfMessage(s, responses.EasyInputMessageRoleUser)
	}
	var out responses.ResponseInputMessageContentListParam
	for i := range ps {
		p := &ps[i]
		switch p.medium {
		case modelreq.Image:
			c := responses.ResponseInputContentParamOfInputImage(responses.ResponseInputImageDetailAuto)
			c.OfInputImage.ImageURL = param.NewOpt(p.url())
			out = append(out, c)
		case modelreq.PDF:
			f := responses.ResponseInputFileParam{FileData: param.NewOpt(p.url()), Filename: param.NewOpt(p.file())}
			out = append(out, responses.ResponseInputContentUnionParam{OfInputFile: &f})
		default:
			out = append(out, responses.ResponseInputContentParamOfInputText(p.text))
		}
	}
	return responses.ResponseInputItemParamOfMessage(out, responses.EasyInputMessageRoleUser)
}

// outputItems renders what the model had said: each part is an item of its own, and reasoning stands where it stood.
func (m *Model) outputItems(msg writ.Message) []responses.ResponseInputItemUnionParam {
	var own []writ.Part
	for _, p := range msg.Parts {
		if p.Kind == writ.PartThinking && read(&p).Item == nil {
			m.book.Remark("reasoning without encrypted content of this vendor is not sent back")
			continue
		}
		own = append(own, p)
	}
	var out []responses.ResponseInputItemUnionParam
	for _, p := range modelreq.Interleave(own, func(p *writ.Part) modelreq.Place { return read(p).After }) {
		switch p.Kind {
		case writ.PartThinking:
			item := param.Override[responses.ResponseReasoningItemParam](read(&p).Item)
			out = append(out, responses.ResponseInputItemUnionParam{OfReasoning: &item})
		case writ.PartToolUse:
			out = append(out, responses.ResponseInputItemParamOfFunctionCall(string(modelreq.Args(p.Args)), callID(p.ID), p.Name))
		case writ.PartText:
			out = append(out, responses.ResponseInputItemParamOfMessage(p.Text, responses.EasyInputMessageRoleAssistant))
		}
	}
	return out
}

// read returns the reasoning item that a thinking part keeps; none when another vendor made it.
func read(p *writ.Part) opaque {
	var o opaque
	if json.Unmarshal(p.Opaque, &o) != nil || len(o.Item) == 0 || o.Item[0] != '{' {
		return opaque{}
	}
	return o
}
