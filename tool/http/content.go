package http

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"path"
	"strings"
	"unicode/utf8"

	"writ"
)

// content is a body in the best form it has. What calls itself JSON and is none stays the text or bytes that it is.
func content(h http.Header, data []byte) writ.Content {
	typ := h.Get("Content-Type")
	if typ == "" {
		typ = http.DetectContentType(data)
	}
	mt, params, err := mime.ParseMediaType(typ)
	if err != nil {
		mt = strings.ToLower(strings.TrimSpace(strings.Split(typ, ";")[0]))
	}
	name := fileName(h)
	if (mt == "application/json" || strings.HasSuffix(mt, "+json")) && json.Valid(data) && utf8.Valid(data) {
		var b bytes.Buffer
		if json.Compact(&b, data) == nil {
			return writ.Content{Kind: writ.ContentJSON, JSON: b.Bytes(), Name: name}
		}
	}
	if !textual(mt) {
		return writ.Content{Kind: writ.ContentBlob, Data: data, MIME: mt, Name: name}
	}
	switch charset := strings.ToLower(params["charset"]); {
	case charset == "iso-8859-1" || charset == "latin1" || charset == "windows-1252" && !utf8.Valid(data):
		runes := make([]rune, len(data))
		for i, b := range data {
			runes[i] = rune(b)
		}
		return writ.Content{Kind: writ.ContentText, Text: string(runes), MIME: mt, Name: name}
	case !utf8.Valid(data):
		return writ.Content{Kind: writ.ContentBlob, Data: data, MIME: mt, Name: name}
	}
	return writ.Content{Kind: writ.ContentText, Text: string(data), MIME: mt, Name: name}
}

// textual reports whether a media type is for reading.
func textual(mt string) bool {
	if strings.HasPrefix(mt, "text/") || strings.HasSuffix(mt, "+json") || strings.HasSuffix(mt, "+xml") || strings.HasSuffix(mt, "+yaml") {
		return true
	}
	switch mt {
	case "application/json", "application/xml", "application/yaml", "application/x-yaml", "application/javascript",
		"application/x-ndjson", "application/jsonl", "application/sql", "application/graphql", "application/toml",
		"application/x-www-form-urlencoded":
		return true
	}
	return false
}

func fileName(h http.Header) string {
	_, params, err := mime.ParseMediaType(h.Get("Content-Disposition"))
	if err != nil || params["filename"] == "" {
		return ""
	}
	name := path.Base(strings.ReplaceAll(params["filename"], `\`, "/"))
	if name == "." || name == ".." || name == "/" || len(name) > 200 {
		return ""
	}
	return name
}

// linkNext is the target of rel=next in Link headers (RFC 8288).
func linkNext(values []string) string {
	for _, v := range values {
		for len(v) > 0 {
			open := strings.IndexByte(v, '<')
			if open < 0 {
				break
			}
			target, rest, ok := strings.Cut(v[open+1:], ">")
			if !ok {
				break
			}
			end := endOfLink(rest)
			for _, p := range strings.Split(rest[:end], ";") {
				key, value, _ := strings.Cut(p, "=")
				if strings.EqualFold(strings.TrimSpace(key), "rel") {
					for _, rel := range strings.Fields(strings.Trim(strings.TrimSpace(value), `"`)) {
						if strings.EqualFold(rel, "next") {
							return target
						}
					}
				}
			}
			v = rest[end:]
		}
	}
	return ""
}

// endOfLink is where the parameters of one link end: at a comma outside quotes.
func endOfLink(s string) int {
	quoted := false
	for i := range len(s) {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == ',' && !quoted:
			return i
		}
	}
	return len(s)
}

// cursorKeys are the usual places of a cursor in a JSON answer.
var cursorKeys = []string{"next_cursor", "nextCursor", "next_page_token", "nextPageToken", "next_page", "nextPage",
	"next", "nextLink", "@odata.nextLink", "links.next", "_links.next", "meta.next_cursor", "pagination.next", "paging.next"}

// cursorKey names the place of a cursor to a next page, if the answer has one.
func cursorKey(h http.Header, data []byte) string {
	if !isJSON(h.Get("Content-Type")) || len(data) == 0 || bytes.TrimSpace(data)[0] != '{' {
		return ""
	}
	var top map[string]json.RawMessage
	if json.Unmarshal(data, &top) != nil {
		return ""
	}
	for _, key := range cursorKeys {
		m, last := top, key
		if outer, inner, nested := strings.Cut(key, "."); nested && !strings.HasPrefix(key, "@") {
			m, last = nil, inner
			if json.Unmarshal(top[outer], &m) != nil {
				continue
			}
		}
		switch v := string(m[last]); v {
		case "", "null", `""`, "false", "0", "{}", "[]":
		default:
			return key
		}
	}
	return ""
}
