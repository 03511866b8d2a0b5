package http

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"writ"
)

// Bounds of one document's tools.
const (
	maxOperations  = 10_000
	maxSchemaBytes = 1 << 20 // of one tool
	maxDescription = 8 << 10
	maxName        = 64
)

// operation is one tool.
type operation struct {
	name, method string
	path         []piece
	params       []param
	body         *body
	safe         bool // the method promises to change nothing (RFC 9110 §9.2.1)
}

// param is one parameter of an operation.
type param struct {
	key      string // its property in the tool's schema
	name, in string
	style    string
	explode  bool
	json     bool // serialized as JSON (content: application/json)
	required bool
}

type body struct {
	mime     string
	required bool
}

// piece is a literal part of a path, or the parameter in its place.
type piece struct {
	literal string
	param   string
}

// read turns the document's operations into tools. One that cannot be expressed is left out by itself and named.
func (t *Tools) read(doc *openapi3.T) {
	type found struct {
		path, method string
		item         *openapi3.PathItem
		op           *openapi3.Operation
	}
	var all []found
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			all = append(all, found{path, strings.ToUpper(method), item, op})
		}
	}
	slices.SortFunc(all, func(a, b found) int { return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.method, b.method)) })
	if len(all) > maxOperations {
		t.problem("", fmt.Sprintf("the document has more than %d operations; the rest is left out", maxOperations), "")
		all = all[:maxOperations]
	}
	count := map[string]int{}
	for _, f := range all {
		count[toolName(f.op, f.method, f.path)]++
	}
	for _, f := range all {
		name := toolName(f.op, f.method, f.path)
		if count[name] > 1 {
			t.problem(name, fmt.Sprintf("%s %s is left out: %d operations have this name", f.method, f.path, count[name]), "give them different operationIds")
			continue
		}
		op, spec, loose, err := t.tool(name, f.method, f.path, f.item, f.op)
		if err != nil {
			t.problem(name, fmt.Sprintf("%s %s is left out: %v", f.method, f.path, err), "")
			continue
		}
		if len(loose) > 0 {
			t.problem(name, "not everything of its schema can be checked here: "+strings.Join(loose, ", "), "")
		}
		t.ops[name] = op
		t.specs = append(t.specs, spec)
	}
	slices.SortFunc(t.specs, func(a, b writ.ToolSpec) int { return strings.Compare(a.Name, b.Name) })
	slices.SortStableFunc(t.problems, func(a, b writ.Problem) int { return strings.Compare(a.Tool, b.Tool) })
}

func (t *Tools) problem(tool, message, hint string) {
	t.problems = append(t.problems, writ.Problem{Tool: tool, Message: message, Hint: hint})
}

var (
	unsafeName = regexp.MustCompile(`[^A-Za-z0-9-]+`)
	unsafeKey  = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)
)

// toolName is the operationId with other characters than letters, digits, "-" and "_" replaced, else METHOD_PATH.
func toolName(op *openapi3.Operation, method, path string) string {
	name := op.OperationID
	if strings.Trim(name, "_ ") == "" {
		name = strings.ToLower(method) + "_" + path
	}
	name = strings.Trim(unsafeName.ReplaceAllString(name, "_"), "_")
	if len(name) > maxName {
		sum := sha256.Sum256([]byte(name))
		name = name[:maxName-9] + "_" + hex.EncodeToString(sum[:4])
	}
	return cmp.Or(name, "operation")
}

// tool builds one tool, or says why it cannot be one.
func (t *Tools) tool(name, method, path string, item *openapi3.PathItem, op *openapi3.Operation) (*operation, writ.ToolSpec, []string, error) {
	fail := func(err error) (*operation, writ.ToolSpec, []string, error) { return nil, writ.ToolSpec{}, nil, err }
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return fail(fmt.Errorf("the method %s is not supported", method))
	}
	if err := t.ownServers(item, op); err != nil {
		return fail(err)
	}
	o := &operation{name: name, method: method}
	o.safe = method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
	c := newSchemas()
	props, required, err := t.parameters(o, c, item, op)
	if err != nil {
		return fail(err)
	}
	if err := o.setPath(path); err != nil {
		return fail(err)
	}
	if op.RequestBody != nil {
		if err := o.setBody(c, op.RequestBody, props, &required); err != nil {
			return fail(err)
		}
	}
	schema := object{"type": "object", "properties": props, "additionalProperties": false}
	if len(required) > 0 {
		schema["required"] = required
	}
	if len(c.defs) > 0 {
		schema["$defs"] = c.defs
	}
	raw, err := encode(schema)
	if err != nil {
		return fail(err)
	}
	if len(raw) > maxSchemaBytes {
		return fail(fmt.Errorf("its schema has more than %d bytes", maxSchemaBytes))
	}
	strategy := writ.Exploitation
	if o.safe {
		strategy = writ.Exploration
	}
	spec := writ.ToolSpec{Name: name, Description: describe(op, item, method, path), Schema: raw,
		Declared: &writ.DeclaredTraits{Strategy: &strategy}}
	definition, err := encode([]any{name, method, path, spec.Description, json.RawMessage(raw)})
	if err != nil {
		return fail(err)
	}
	sum := sha256.Sum256(definition)
	spec.Definition = hex.EncodeToString(sum[:])
	return o, spec, c.loose, nil
}

// ownServers refuses an operation that the document sends elsewhere: nobody but the configuration decides who gets
// the headers and the arguments.
func (t *Tools) ownServers(item *openapi3.PathItem, op *openapi3.Operation) error {
	if t.base.trusted {
		return nil
	}
	servers := item.Servers
	if op.Servers != nil {
		servers = *op.Servers
	}
	for _, s := range servers {
		if u, err := serverURL(s); err != nil || u.String() != t.base.url.String() {
			return errors.New("it has a server of its own (hint: set url, then all operations go there)")
		}
	}
	return nil
}

// parameters collects the operation's parameters over those of its path.
func (t *Tools) parameters(o *operation, c *schemas, item *openapi3.PathItem, op *openapi3.Operation) (props object, required []string, err error) {
	var all []*openapi3.Parameter
	for _, list := range []openapi3.Parameters{op.Parameters, item.Parameters} {
		for _, ref := range list {
			if ref == nil || ref.Value == nil {
				return nil, nil, errors.New("a parameter is not there")
			}
			p := ref.Value
			if !slices.ContainsFunc(all, func(q *openapi3.Parameter) bool { return q.Name == p.Name && q.In == p.In }) {
				all = append(all, p)
			}
		}
	}
	rank := []string{"path", "query", "header", "cookie"}
	slices.SortStableFunc(all, func(a, b *openapi3.Parameter) int {
		return slices.Index(rank, a.In) - slices.Index(rank, b.In)
	})
	props = object{}
	for _, p := range all {
		if p.In == "header" && t.ownHeader(p.Name) {
			continue
		}
		if p.In == "cookie" && t.hasHeader("Cookie") {
			continue
		}
		q, schema, err := parameter(c, p)
		if err != nil {
			return nil, nil, fmt.Errorf("parameter %.60q: %w", p.Name, err)
		}
		q.key = freeKey(props, p)
		props[q.key] = schema
		if q.required {
			required = append(required, q.key)
		}
		o.params = append(o.params, q)
	}
	return props, required, nil
}

// ownHeader reports whether a header is not the model's to set: the specification ignores three such parameters, the
// configuration has some, and some are the protocol's.
func (t *Tools) ownHeader(name string) bool {
	switch strings.ToLower(name) {
	case "accept", "content-type", "authorization", "cookie":
		return true
	}
	return managed[strings.ToLower(name)] || t.hasHeader(name)
}

func (t *Tools) hasHeader(name string) bool {
	for h := range t.cfg.Headers {
		if strings.EqualFold(h, name) {
			return true
		}
	}
	return false
}

const bodyKey = "body"

// freeKey is the parameter's name, fit for a property and not taken.
func freeKey(props object, p *openapi3.Parameter) string {
	key := strings.Trim(unsafeKey.ReplaceAllString(p.Name, "_"), "_")
	if key == "" || key == bodyKey {
		key = p.In + "_" + cmp.Or(key, "parameter")
	}
	if len(key) > maxName {
		key = key[:maxName]
	}
	for i := 1; ; i++ {
		try := key
		switch {
		case i == 2:
			try = p.In + "_" + key
		case i > 2:
			try = p.In + "_" + key + "_" + strconv.Itoa(i-1)
		}
		if _, taken := props[try]; !taken {
			return try
		}
	}
}

// styles are what can be sent, by place.
var styles = map[string][]string{
	"path":   {"simple", "label", "matrix"},
	"query":  {"form", "spaceDelimited", "pipeDelimited", "deepObject"},
	"header": {"simple"},
	"cookie": {"form"},
}

func parameter(c *schemas, p *openapi3.Parameter) (param, any, error) {
	q := param{name: p.Name, in: p.In, required: p.Required || p.In == "path"}
	if p.Name == "" {
		return q, nil, errors.New("it has no name")
	}
	if p.In == "header" && !validToken(p.Name) || p.In == "cookie" && !validToken(p.Name) {
		return q, nil, errors.New("its name cannot be sent")
	}
	method, err := p.SerializationMethod()
	if err != nil {
		return q, nil, err
	}
	q.style, q.explode = method.Style, method.Explode
	ref := p.Schema
	if ref == nil {
		if len(p.Content) != 1 {
			return q, nil, errors.New("it has neither a schema nor one content type")
		}
		for typ, media := range p.Content {
			if !isJSON(typ) {
				return q, nil, fmt.Errorf("its content type %.60q is not supported", typ)
			}
			q.json = true
			if media != nil {
				ref = media.Schema
			}
		}
	}
	if !q.json && !slices.Contains(styles[q.in], q.style) {
		return q, nil, fmt.Errorf("the style %.40q is not supported in %s", q.style, q.in)
	}
	schema, err := c.of(ref)
	if err != nil {
		return q, nil, err
	}
	text := p.Description
	if p.Deprecated {
		text = strings.TrimSpace("Deprecated. " + text)
	}
	return q, described(schema, text), nil
}

// described adds a description to a schema that has none, beside its reference too, as 2020-12 allows.
func described(schema any, text string) any {
	m, ok := schema.(object)
	if !ok {
		if schema == true {
			m = object{}
		} else {
			return schema
		}
	}
	if _, has := m["description"]; !has && text != "" {
		m["description"] = clip(text)
	}
	return m
}

var placeholder = regexp.MustCompile(`\{([^{}]+)\}`)

// setPath cuts the template into pieces and pairs its names with the parameters.
func (o *operation) setPath(path string) error {
	if !strings.HasPrefix(path, "/") {
		return errors.New("its path does not begin with a slash")
	}
	if strings.ContainsAny(path, "?#") {
		return errors.New("its path has a query or a fragment")
	}
	used := map[string]bool{}
	at := 0
	for _, m := range placeholder.FindAllStringSubmatchIndex(path, -1) {
		name := path[m[2]:m[3]]
		if !slices.ContainsFunc(o.params, func(p param) bool { return p.in == "path" && p.name == name }) {
			return fmt.Errorf("its path has {%s}, but there is no such parameter", name)
		}
		used[name] = true
		o.path = append(o.path, piece{literal: escapeLiteral(path[at:m[0]])}, piece{param: name})
		at = m[1]
	}
	o.path = append(o.path, piece{literal: escapeLiteral(path[at:])})
	for _, p := range o.params {
		if p.in == "path" && !used[p.name] {
			return fmt.Errorf("its path has no place for the parameter %q", p.name)
		}
	}
	return nil
}

func (o *operation) setBody(c *schemas, ref *openapi3.RequestBodyRef, props object, required *[]string) error {
	if ref.Value == nil {
		return errors.New("its request body is not there")
	}
	rb := ref.Value
	var types []string
	for typ := range rb.Content {
		types = append(types, typ)
	}
	slices.Sort(types)
	i := slices.IndexFunc(types, func(s string) bool { return s == "application/json" })
	if i < 0 {
		i = slices.IndexFunc(types, isJSON)
	}
	if i < 0 {
		if rb.Required || len(types) == 0 {
			return fmt.Errorf("its request body is %s, and only JSON is supported", strings.Join(types, " or "))
		}
		return nil // a request without it is allowed
	}
	var schema any = true
	if media := rb.Content[types[i]]; media != nil && media.Schema != nil {
		var err error
		if schema, err = c.of(media.Schema); err != nil {
			return err
		}
	}
	o.body = &body{mime: types[i], required: rb.Required}
	if strings.Contains(types[i], "*") {
		o.body.mime = "application/json"
	}
	props[bodyKey] = described(schema, rb.Description)
	if rb.Required {
		*required = append(*required, bodyKey)
	}
	return nil
}

func isJSON(typ string) bool {
	if typ == "*/*" || typ == "application/*" {
		return true
	}
	mt, _, err := mime.ParseMediaType(typ)
	return err == nil && (mt == "application/json" || strings.HasSuffix(mt, "+json"))
}

func describe(op *openapi3.Operation, item *openapi3.PathItem, method, path string) string {
	var parts []string
	if op.Deprecated {
		parts = append(parts, "Deprecated.")
	}
	for _, s := range []string{cmp.Or(op.Summary, item.Summary), cmp.Or(op.Description, item.Description)} {
		if s = strings.TrimSpace(s); s != "" && !slices.Contains(parts, s) {
			parts = append(parts, clip(s))
		}
	}
	return strings.Join(append(parts, method+" "+path), "\n\n")
}

func clip(s string) string {
	if len(s) <= maxDescription {
		return s
	}
	return strings.ToValidUTF8(s[:maxDescription], "") + "…"
}

// encode is JSON without the escapes for HTML, keys sorted.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("its schema is no JSON: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}
