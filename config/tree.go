package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Limits of one file. They bound the work that a hostile file can cause; maxKeys is low because the YAML parser's
// time grows with the square of the keys.
const (
	maxBytes = 4 << 20
	maxDepth = 64
	maxNodes = 100_000
	maxKeys  = 20_000
)

// kind is the type of a node.
type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindInt
	kindFloat
	kindString
	kindList
	kindMap
)

// node is one value of a file: the YAML tree with anchors resolved, merge keys applied and duplicate keys dropped.
// Nodes are shared between an anchor and its aliases and never change once built.
type node struct {
	kind    kind
	pos     Pos
	text    string // of a scalar
	items   []*node
	entries []entry
	size    int // nodes below and including this one, aliases expanded
	height  int // levels below and including this one
}

// entry is one key of a mapping.
type entry struct {
	key   string
	pos   Pos
	value *node
}

// get returns the entry with that key.
func (n *node) get(key string) (entry, bool) {
	if n != nil {
		for _, e := range n.entries {
			if e.key == key {
				return e, true
			}
		}
	}
	return entry{}, false
}

// describe names the node's type for a person.
func (n *node) describe() string {
	return [...]string{"empty", "a boolean", "a number", "a number", "a string", "a list", "a mapping"}[n.kind]
}

// parseTree reads one file. The root is a mapping, or nil when the report says why there is none.
func parseTree(name string, data []byte, report *Report) *node {
	root := parseTreeAny(name, data, report)
	if root != nil && root.kind != kindMap {
		report.errorf(root.pos, "start with react: or surfaces:", "a configuration is a mapping, not %s", root.describe())
		return nil
	}
	return root
}

// parseTreeAny is parseTree for a root of any kind.
func parseTreeAny(name string, data []byte, report *Report) *node {
	text, ok := cleanText(name, data, report)
	if !ok {
		return nil
	}
	tokens := lexer.Tokenize(text)
	if !checkTokens(name, tokens, report) {
		return nil
	}
	file, err := parseTokens(tokens)
	if err != nil {
		reportSyntax(name, err, report)
		return nil
	}
	body := onlyDocument(name, file, report)
	if body == nil {
		return nil
	}
	b := &treeBuilder{file: name, report: report, anchors: map[string]*node{}, open: map[string]bool{}}
	root := b.build(body, 1)
	if b.full {
		return nil
	}
	return root
}

// cleanText checks the bytes and returns them without a byte order mark and with plain line ends.
func cleanText(name string, data []byte, report *Report) (string, bool) {
	whole := Pos{File: name}
	if len(data) > maxBytes {
		report.errorf(whole, "split it into several files in one directory", "the file is larger than %d MiB", maxBytes>>20)
		return "", false
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	line, column := 1, 1
	for i := 0; i < len(data); {
		r, width := utf8.DecodeRune(data[i:])
		at := Pos{name, line, column}
		switch {
		case r == utf8.RuneError && width == 1:
			report.errorf(at, "save it as UTF-8", "the file is not UTF-8 text")
			return "", false
		case r == '\n':
			line, column = line+1, 0
		case r == '\t' || r == '\r' || r >= ' ' && r != 0x7f:
		default:
			report.errorf(at, "is this a text file?", "control character %U in the file", r)
			return "", false
		}
		i, column = i+width, column+1
	}
	text := strings.ReplaceAll(string(data), "\r\n", "\n")
	return strings.ReplaceAll(text, "\r", "\n"), true
}

// checkTokens refuses what would make parsing expensive, and double braces, which the parser reports badly.
func checkTokens(name string, tokens token.Tokens, report *Report) bool {
	at := func(t *token.Token) Pos { return Pos{name, t.Position.Line, t.Position.Column} }
	ok, depth, keys := true, depthCounter{}, 0
	var previous *token.Token
	for _, t := range tokens {
		if t.Type == token.MappingStartType && previous != nil && previous.Type == token.MappingStartType {
			report.errorf(at(previous), "write single braces", "a value cannot start with {{")
			ok, t = false, nil
		}
		if previous = t; t == nil {
			continue
		}
		if t.Type == token.MappingValueType {
			keys++
		}
		if depth.next(t) > maxDepth {
			report.errorf(at(t), "", "nested deeper than %d levels", maxDepth)
			return false
		}
	}
	if len(tokens) > 2*maxNodes {
		report.errorf(Pos{File: name}, "split it into several files in one directory", "the file has more than %d values", maxNodes)
		return false
	}
	if keys > maxKeys {
		report.errorf(Pos{File: name}, "split it into several files in one directory", "the file has more than %d keys", maxKeys)
		return false
	}
	return ok
}

// depthCounter estimates from tokens how deeply the parser will recurse: open brackets, open indentations (a dash or
// a question mark opens one too), and the run of tags and anchors before a value.
type depthCounter struct {
	flow, prefixes int
	columns        []int
	line           int
}

func (d *depthCounter) next(t *token.Token) int {
	switch t.Type {
	case token.MappingStartType, token.SequenceStartType:
		d.flow++
	case token.MappingEndType, token.SequenceEndType:
		d.flow = max(0, d.flow-1)
	case token.AnchorType, token.TagType:
		d.prefixes++
	case token.CommentType:
		return 0
	}
	opens := t.Type == token.SequenceEntryType || t.Type == token.MappingKeyType
	if d.flow == 0 && (opens || t.Position.Line != d.line) {
		for len(d.columns) > 0 && d.columns[len(d.columns)-1] >= t.Position.Column {
			d.columns = d.columns[:len(d.columns)-1]
		}
		d.columns, d.prefixes = append(d.columns, t.Position.Column), 0
	}
	d.line = t.Position.Line
	return d.flow + len(d.columns) + d.prefixes/2
}

// parseTokens runs the YAML parser. Its panics on text that it does not understand become errors: a configuration
// file must not be able to end the process.
func parseTokens(tokens token.Tokens) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			file, err = nil, errors.New("the parser does not understand this text")
		}
	}()
	return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
}

// reportSyntax takes the parser's error apart: its own text quotes the source, secrets included.
func reportSyntax(name string, err error, report *Report) {
	var syntax *yaml.SyntaxError
	if !errors.As(err, &syntax) || syntax.Token == nil || syntax.Token.Position == nil {
		report.errorf(Pos{File: name}, "", "invalid yaml: the parser does not understand this text")
		return
	}
	p := syntax.Token.Position
	hint := ""
	if strings.Contains(syntax.Message, "character '\t'") {
		hint = "indent with spaces"
	}
	message := strings.ReplaceAll(syntax.Message, "\t", `\t`)
	report.errorf(Pos{name, p.Line, max(1, p.Column)}, hint, "invalid yaml: %s", message)
}

// onlyDocument returns the body of the one document of a file.
func onlyDocument(name string, file *ast.File, report *Report) ast.Node {
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.DirectiveType || doc.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			pos := Pos{File: name}
			if t := doc.Body.GetToken(); t != nil {
				pos.Line, pos.Column = t.Position.Line, 1
			}
			report.errorf(pos, "put it into a file of its own, in one directory", "a second document in one file")
			return nil
		}
		body = doc.Body
	}
	if body == nil {
		report.errorf(Pos{File: name}, "declare an agent under surfaces.as_consumer.agents", "the file is empty")
	}
	return body
}

// treeBuilder turns the parser's tree into nodes.
type treeBuilder struct {
	file    string
	report  *Report
	anchors map[string]*node
	open    map[string]bool // anchors whose value is being built
	total   int
	full    bool // a limit was reported; build nothing more
}

func (b *treeBuilder) pos(n ast.Node) Pos {
	t := n.GetToken()
	if t == nil || t.Position == nil {
		return Pos{File: b.file}
	}
	return Pos{b.file, t.Position.Line, max(1, t.Position.Column)}
}

// fail reports once that the file is too large or deep, and stops the building.
func (b *treeBuilder) fail(pos Pos, format string, args ...any) *node {
	if !b.full {
		b.report.errorf(pos, "", format, args...)
	}
	b.full = true
	return nil
}

// add counts a finished node, which stands at pos, against the limits.
func (b *treeBuilder) add(n *node, pos Pos, own, depth int) *node {
	if b.total += own; b.total > maxNodes {
		return b.fail(pos, "the file has more than %d values", maxNodes)
	}
	if depth+n.height-1 > maxDepth {
		return b.fail(pos, "nested deeper than %d levels", maxDepth)
	}
	return n
}

// build converts one value. It returns nil after reporting why there is none.
func (b *treeBuilder) build(n ast.Node, depth int) *node {
	if b.full {
		return nil
	}
	if depth > maxDepth {
		return b.fail(b.pos(n), "nested deeper than %d levels", maxDepth)
	}
	switch v := n.(type) {
	case *ast.MappingNode:
		pos := b.pos(v)
		if !v.IsFlowStyle && len(v.Values) > 0 {
			pos = b.pos(v.Values[0].Key)
		}
		return b.mapping(pos, v.Values, depth)
	case *ast.MappingValueNode:
		return b.mapping(b.pos(v.Key), []*ast.MappingValueNode{v}, depth)
	case *ast.SequenceNode:
		return b.sequence(v, depth)
	case *ast.AnchorNode:
		return b.anchor(v, depth)
	case *ast.AliasNode:
		return b.alias(v, depth)
	case *ast.TagNode:
		return b.tagged(v, depth)
	}
	return b.scalar(n, depth)
}

func (b *treeBuilder) scalar(n ast.Node, depth int) *node {
	out := &node{pos: b.pos(n), size: 1, height: 1}
	switch v := n.(type) {
	case *ast.NullNode:
		out.kind = kindNull
	case *ast.BoolNode:
		out.kind, out.text = kindBool, v.GetToken().Value
	case *ast.IntegerNode:
		out.kind, out.text = kindInt, v.GetToken().Value
	case *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		out.kind, out.text = kindFloat, n.GetToken().Value
	case *ast.StringNode:
		out.kind, out.text = kindString, v.Value
	case *ast.LiteralNode:
		out.kind, out.text = kindString, v.Value.Value
	default:
		b.report.errorf(out.pos, "", "this yaml construct is not used here")
		return nil
	}
	return b.add(out, out.pos, 1, depth)
}

func (b *treeBuilder) sequence(v *ast.SequenceNode, depth int) *node {
	out := &node{kind: kindList, pos: b.pos(v), size: 1, height: 1}
	for _, item := range v.Values {
		child := b.build(item, depth+1)
		if child == nil {
			continue
		}
		out.items = append(out.items, child)
		out.size, out.height = out.size+child.size, max(out.height, child.height+1)
	}
	return b.add(out, out.pos, 1, depth)
}

func (b *treeBuilder) mapping(pos Pos, values []*ast.MappingValueNode, depth int) *node {
	out := &node{kind: kindMap, pos: pos, size: 1, height: 1}
	first := make(map[string]Pos, len(values))
	var merges []*node
	for _, v := range values {
		if v.Key == nil || v.Value == nil {
			continue
		}
		if v.Key.IsMergeKey() {
			if m := b.build(v.Value, depth+1); m != nil {
				merges = append(merges, m)
			}
			continue
		}
		key, at, ok := b.key(v.Key)
		child := b.build(v.Value, depth+1)
		if !ok || child == nil {
			continue
		}
		if earlier, twice := first[key]; twice {
			b.report.errorf(at, "keep one of them", "key %s is set twice, first at line %d", quote(key), earlier.Line)
			continue
		}
		first[key] = at
		out.entries = append(out.entries, entry{key, at, child})
		out.size, out.height = out.size+child.size, max(out.height, child.height+1)
	}
	for _, m := range merges {
		b.merge(out, m, first)
	}
	return b.add(out, out.pos, 1, depth)
}

// merge applies the value of a "<<" key: keys that are not there yet are taken over.
func (b *treeBuilder) merge(out, from *node, have map[string]Pos) {
	switch from.kind {
	case kindList:
		for _, item := range from.items {
			if item.kind == kindList {
				b.report.errorf(item.pos, "", "a merge key takes mappings, not %s", item.describe())
				continue
			}
			b.merge(out, item, have)
		}
	case kindMap:
		for _, e := range from.entries {
			if _, set := have[e.key]; set {
				continue
			}
			have[e.key] = e.pos
			out.entries = append(out.entries, e)
			out.size, out.height = out.size+e.value.size, max(out.height, e.value.height+1)
		}
	default:
		b.report.errorf(from.pos, "", "a merge key takes a mapping, not %s", from.describe())
	}
}

// key reads the key of a mapping, which is any scalar, as written.
func (b *treeBuilder) key(k ast.MapKeyNode) (string, Pos, bool) {
	n := ast.Node(k)
	if wrapped, ok := n.(*ast.MappingKeyNode); ok && wrapped.Value != nil {
		n = wrapped.Value
	}
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, b.pos(n), true
	case *ast.IntegerNode, *ast.BoolNode, *ast.FloatNode, *ast.NullNode:
		return n.GetToken().Value, b.pos(n), true
	}
	b.report.errorf(b.pos(n), "", "a key is a plain name")
	return "", Pos{}, false
}

func (b *treeBuilder) anchor(v *ast.AnchorNode, depth int) *node {
	name := ""
	if v.Name != nil && v.Name.GetToken() != nil {
		name = v.Name.GetToken().Value
	}
	if v.Value == nil {
		b.report.errorf(b.pos(v), "", "anchor %s has no value", quote(name))
		return nil
	}
	if _, twice := b.anchors[name]; twice || b.open[name] {
		b.report.errorf(b.pos(v), "give it another name", "anchor %s is defined twice", quote(name))
		return b.build(v.Value, depth+1)
	}
	b.open[name] = true
	out := b.build(v.Value, depth)
	delete(b.open, name)
	if out != nil {
		b.anchors[name] = out
	}
	return out
}

// alias counts what it stands for in full, so that a few lines cannot stand for billions of values.
func (b *treeBuilder) alias(v *ast.AliasNode, depth int) *node {
	name := ""
	if v.Value != nil && v.Value.GetToken() != nil {
		name = v.Value.GetToken().Value
	}
	if b.open[name] {
		b.report.errorf(b.pos(v), "", "alias %s stands inside its own anchor", quote(name))
		return nil
	}
	target, ok := b.anchors[name]
	if !ok {
		b.report.errorf(b.pos(v), "define it above with &"+name, "alias %s has no anchor", quote(name))
		return nil
	}
	if b.total+target.size > maxNodes {
		return b.fail(b.pos(v), "alias %s expands the file to more than %d values", quote(name), maxNodes)
	}
	return b.add(target, b.pos(v), target.size, depth)
}

func (b *treeBuilder) tagged(v *ast.TagNode, depth int) *node {
	tag := v.GetToken().Value
	if tag != "!!str" || v.Value == nil {
		b.report.errorf(b.pos(v), "leave it out", "tag %s is not used here", quote(tag))
		return nil
	}
	out := b.build(v.Value, depth+1)
	if out == nil || out.kind == kindList || out.kind == kindMap {
		return out
	}
	text := *out
	text.kind = kindString
	return &text
}

// mergeTrees adds the keys of from to into: mappings are joined, anything else that is in both is an error.
func mergeTrees(into, from *node, path string, report *Report) *node {
	out := *into
	out.entries = append([]entry(nil), into.entries...)
	index := make(map[string]int, len(out.entries))
	for i, e := range out.entries {
		index[e.key] = i
	}
	for _, e := range from.entries {
		i, both := index[e.key]
		switch {
		case !both:
			out.entries = append(out.entries, e)
		case out.entries[i].value.kind == kindMap && e.value.kind == kindMap:
			out.entries[i].value = mergeTrees(out.entries[i].value, e.value, join(path, e.key), report)
		default:
			report.errorf(e.pos, "keep one of them", "%s is set twice, first at %s", join(path, e.key), out.entries[i].pos)
		}
	}
	return &out
}

// join extends the dotted path of a key.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return fmt.Sprintf("%s.%s", path, key)
}
