package mcpclient

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"writ"
)

// wireResult is the result of tools/call (MCP 2025-11-25, and what 2026-07-28 adds). Its parts stay raw so that
// one malformed part does not lose the others: the call has happened, and what it said must be kept.
type wireResult struct {
	Content           json.RawMessage `json:"content"`
	StructuredContent json.RawMessage `json:"structuredContent"`
	IsError           bool            `json:"isError"`
	InputRequests     json.RawMessage `json:"inputRequests"`
	RequestState      string          `json:"requestState"`
	ResultType        string          `json:"resultType"`
}

type wireContent struct {
	Type     string        `json:"type"`
	Text     string        `json:"text"`
	MIME     string        `json:"mimeType"`
	Data     string        `json:"data"`
	URI      string        `json:"uri"`
	Name     string        `json:"name"`
	Resource *wireResource `json:"resource"`
}

type wireResource struct {
	URI  string  `json:"uri"`
	MIME string  `json:"mimeType"`
	Text *string `json:"text"`
	Blob *string `json:"blob"`
}

// mapResult reads the result of a call. An error means that the server answered something that is no result, so
// that not even success or failure is known; or, where the caller handles that, [*writ.InputRequired].
func mapResult(raw json.RawMessage, askInput bool) (writ.Result, error) {
	var w wireResult
	if err := json.Unmarshal(raw, &w); err != nil || !startsWith(raw, '{') {
		return writ.Result{}, fmt.Errorf("the server's answer is no tool result: %.200q", raw)
	}
	if present(w.InputRequests) || w.ResultType == "input_required" {
		if askInput {
			requests := compact(w.InputRequests)
			if !present(requests) {
				requests = json.RawMessage("{}")
			}
			return writ.Result{}, &writ.InputRequired{Requests: requests, State: w.RequestState}
		}
		return writ.ErrorResult("the tool asks for further input, which is not offered here; it says that it has not completed"), nil
	}
	res := writ.Result{IsError: w.IsError}
	var parts []json.RawMessage
	if present(w.Content) {
		if json.Unmarshal(w.Content, &parts) != nil {
			parts = []json.RawMessage{w.Content}
		}
	}
	for _, p := range parts {
		res.Content = append(res.Content, mapContent(p))
	}
	if present(w.StructuredContent) {
		// The specification wants the same value as text for old clients; once is enough.
		res.Content = slices.DeleteFunc(res.Content, func(c writ.Content) bool {
			return c.Kind == writ.ContentText && c.URI == "" && sameJSON(c.Text, w.StructuredContent)
		})
		res.Content = append(res.Content, writ.Content{Kind: writ.ContentJSON, JSON: compact(w.StructuredContent)})
	}
	return res, nil
}

// mapContent maps one part; what it does not know it keeps as JSON.
func mapContent(raw json.RawMessage) writ.Content {
	var w wireContent
	if json.Unmarshal(raw, &w) != nil {
		return writ.Content{Kind: writ.ContentJSON, JSON: compact(raw)}
	}
	switch w.Type {
	case "text":
		return writ.Content{Kind: writ.ContentText, Text: w.Text}
	case "image", "audio":
		if data, err := decodeBase64(w.Data); err == nil {
			return writ.Content{Kind: writ.ContentBlob, Data: data, MIME: w.MIME}
		}
	case "resource_link":
		return writ.Content{Kind: writ.ContentLink, URI: w.URI, Name: w.Name, MIME: w.MIME}
	case "resource":
		if c, ok := mapResource(w.Resource); ok {
			return c
		}
	}
	return writ.Content{Kind: writ.ContentJSON, JSON: compact(raw)}
}

func mapResource(r *wireResource) (writ.Content, bool) {
	switch {
	case r == nil:
		return writ.Content{}, false
	case r.Blob != nil:
		data, err := decodeBase64(*r.Blob)
		return writ.Content{Kind: writ.ContentBlob, Data: data, MIME: r.MIME, URI: r.URI}, err == nil
	case r.Text != nil:
		return writ.Content{Kind: writ.ContentText, Text: *r.Text, MIME: r.MIME, URI: r.URI}, true
	}
	return writ.Content{Kind: writ.ContentLink, URI: r.URI, MIME: r.MIME}, r.URI != ""
}

func decodeBase64(s string) ([]byte, error) {
	if data, err := base64.StdEncoding.DecodeString(s); err == nil {
		return data, nil
	}
	s = strings.TrimRight(s, "=")
	if data, err := base64.RawStdEncoding.DecodeString(s); err == nil {
		return data, nil
	}
	if data, err := base64.RawURLEncoding.DecodeString(s); err == nil {
		return data, nil
	}
	return nil, errors.New("not base64")
}

func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

func startsWith(raw json.RawMessage, b byte) bool {
	t := bytes.TrimSpace(raw)
	return len(t) > 0 && t[0] == b
}

func compact(raw json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

func sameJSON(text string, raw json.RawMessage) bool {
	a, aerr := decodeJSON([]byte(text))
	b, berr := decodeJSON(raw)
	return aerr == nil && berr == nil && reflect.DeepEqual(a, b)
}

func decodeJSON(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if dec.More() {
		return nil, errors.New("more than one value")
	}
	return v, nil
}
