package recorded

import (
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

// A recording needs few levels and few keys. More would only let a hostile file cost the parser stack and time, which
// grows with the square of one mapping's keys.
const (
	maxDepth = 16
	maxKeys  = 100
)

// node is one value of the file.
type node struct {
	pos     token.Position
	kind    string // "a mapping", "a list", "a string", "a number", "a boolean", "empty"
	text    string // of a scalar
	entries []entry
	items   []node
}

type entry struct {
	key   string
	pos   token.Position
	value node
}

// fault is how the parser's functions give up; Parse turns it into the returned error.
type fault struct{ err *Error }

func fail(pos token.Position, hint, format string, args ...any) {
	panic(fault{&Error{Line: pos.Line, Column: pos.Column, Message: fmt.Sprintf(format, args...), Hint: hint}})
}

var wholeFile token.Position

// parseTree reads the file into nodes.
func parseTree(data []byte) node {
	tokens, err := tokenize(cleanText(data))
	var file *ast.File
	if err == nil {
		checkTokens(tokens)
		file, err = parseTokens(tokens)
	}
	if err != nil {
		var at yaml.Error
		if errors.As(err, &at) && at.GetToken() != nil {
			fail(*at.GetToken().Position, "", "not valid YAML: %s", at.GetMessage())
		}
		fail(wholeFile, "", "not valid YAML: %v", err)
	}
	var body ast.Node
	for _, d := range file.Docs {
		if d.Body == nil {
			continue
		}
		if _, comment := d.Body.(*ast.CommentGroupNode); comment {
			continue
		}
		if body != nil {
			fail(build(d.Body).pos, "write one recording in a file", "a second document")
		}
		body = d.Body
	}
	if body == nil {
		fail(wholeFile, `begin with "writ_recording: 1"`, "the file is empty")
	}
	return build(body)
}

// cleanText checks the bytes and returns them without a byte order mark and with plain line ends.
func cleanText(data []byte) string {
	if len(data) > MaxBytes {
		fail(wholeFile, "split it into several recordings", "the file is larger than %d MiB", MaxBytes>>20)
	}
	text := strings.TrimPrefix(string(data), "\ufeff")
	at := token.Position{Line: 1, Column: 1}
	for i := 0; i < len(text); {
		r, w := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && w == 1:
			fail(at, "a recording is UTF-8 text; write other bytes as escapes in a double-quoted string", "byte 0x%02x is not UTF-8", text[i])
		case r == '\n':
			at.Line, at.Column = at.Line+1, 0
		case r == '\t' || r == '\r' || r >= ' ' && r != 0x7f:
		default:
			fail(at, "write it as an escape in a double-quoted string", "control character %U", r)
		}
		i += w
		at.Column++
	}
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return strings.ReplaceAll(text, "\r", "\n")
}

// checkTokens refuses what a recording does not need and what would make parsing expensive.
func checkTokens(tokens token.Tokens) {
	var levels nesting
	for _, t := range tokens {
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			fail(*t.Position, "write the value out", "anchors and aliases are not used in a recording")
		case token.TagType, token.DirectiveType, token.MappingKeyType:
			fail(*t.Position, "write plain keys and values", "tags, directives and complex keys are not used in a recording")
		case token.CommentType:
			continue
		}
		levels.next(t)
		if len(levels.block)+len(levels.flow) > maxDepth {
			fail(*t.Position, "", "nested deeper than %d levels", maxDepth)
		}
		if levels.keys > maxKeys {
			fail(*t.Position, "", "a mapping has more than %d keys", maxKeys)
		}
	}
}

// nesting follows the open mappings and lists of a token stream, and how many keys the innermost has.
type nesting struct {
	block []level // by column
	flow  []level // inside brackets and braces
	keys  int
	line  int
}

type level struct{ column, keys int }

func (n *nesting) next(t *token.Token) {
	n.keys = 0
	switch t.Type {
	case token.MappingStartType, token.SequenceStartType:
		n.flow = append(n.flow, level{})
	case token.MappingEndType, token.SequenceEndType:
		n.flow = n.flow[:max(0, len(n.flow)-1)]
	case token.MappingValueType:
		if last := len(n.flow) - 1; last >= 0 {
			n.flow[last].keys++
			n.keys = n.flow[last].keys
		}
	}
	item := t.Type == token.SequenceEntryType
	if len(n.flow) == 0 && (item || t.Position.Line != n.line) {
		for len(n.block) > 0 && n.block[len(n.block)-1].column > t.Position.Column {
			n.block = n.block[:len(n.block)-1]
		}
		if len(n.block) == 0 || n.block[len(n.block)-1].column < t.Position.Column {
			n.block = append(n.block, level{column: t.Position.Column})
		}
		if top := &n.block[len(n.block)-1]; !item {
			top.keys++
			n.keys = top.keys
		}
	}
	n.line = t.Position.Line
}

// The YAML library panics on some texts that it does not understand; a recording must not end the process.
func asError(err *error) {
	if r := recover(); r != nil {
		*err = errors.New("the parser does not understand this text")
	}
}

func tokenize(text string) (tokens token.Tokens, err error) {
	defer asError(&err)
	return lexer.Tokenize(text), nil
}

func parseTokens(tokens token.Tokens) (file *ast.File, err error) {
	defer asError(&err)
	return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey()) // build reports them, with both places
}

func build(n ast.Node) node {
	out := node{}
	if t := n.GetToken(); t != nil && t.Position != nil {
		out.pos = *t.Position
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		out.kind = "a mapping"
		if n.Start != nil {
			out.pos = *n.Start.Position
		}
		for _, v := range n.Values {
			out.add(v)
		}
		if len(out.entries) > 0 && !n.IsFlowStyle {
			out.pos = out.entries[0].pos
		}
	case *ast.MappingValueNode:
		out.kind = "a mapping"
		out.add(n)
		out.pos = out.entries[0].pos
	case *ast.SequenceNode:
		out.kind = "a list"
		for _, v := range n.Values {
			out.items = append(out.items, build(v))
		}
	case *ast.StringNode:
		out.kind, out.text = "a string", n.Value
	case *ast.LiteralNode:
		out.kind, out.text = "a string", n.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		out.kind, out.text = "a number", n.GetToken().Value
	case *ast.BoolNode:
		out.kind, out.text = "a boolean", n.GetToken().Value
	case *ast.NullNode:
		out.kind = "empty"
	default:
		fail(out.pos, "write plain keys and values", "%s is not used in a recording", n.Type())
	}
	return out
}

func (n *node) add(v *ast.MappingValueNode) {
	key, ok := v.Key.(ast.ScalarNode)
	if !ok || v.Key.IsMergeKey() {
		fail(*v.Start.Position, "write plain keys", "this key is not used in a recording")
	}
	e := entry{pos: *v.Key.GetToken().Position, value: node{kind: "empty", pos: *v.Start.Position}}
	if s, ok := v.Key.(*ast.StringNode); ok {
		e.key = s.Value
	} else {
		e.key = key.GetToken().Value
	}
	for _, other := range n.entries {
		if other.key == e.key {
			fail(e.pos, "write it once", "the key %q stands twice; first on line %d", e.key, other.pos.Line)
		}
	}
	if len(n.entries) == maxKeys {
		fail(e.pos, "", "a mapping has more than %d keys", maxKeys)
	}
	if v.Value != nil {
		e.value = build(v.Value)
	}
	n.entries = append(n.entries, e)
}
