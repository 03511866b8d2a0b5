package recorded

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"writ"
)

// Parse reads a recording. The name stands in errors; every error is an [*Error].
func Parse(name string, data []byte) (r *Recording, err error) {
	defer func() {
		switch f := recover().(type) {
		case nil:
		case fault:
			f.err.File = name
			r, err = nil, f.err
		default:
			panic(f)
		}
	}()
	root := object(parseTree(data), "a recording", "writ_recording", "dialect", "rounds")
	root.require("writ_recording", "dialect", "rounds")
	if v := root.get("writ_recording"); v.kind != "a number" || v.text != "1" {
		fail(v.pos, "write writ_recording: 1", "this version of the format is not known")
	}
	r = &Recording{name: name, dialect: writ.Dialect(root.choice("dialect", "", string(writ.Channel), string(writ.Native)))}
	list := root.get("rounds")
	if list.kind != "a list" {
		fail(list.pos, "write one entry for each model call", "rounds must be a list, not %s", list.kind)
	}
	if len(list.items) > MaxRounds {
		fail(list.items[MaxRounds].pos, "split it into several recordings", "more than %d rounds", MaxRounds)
	}
	for _, n := range list.items {
		r.rounds = append(r.rounds, parseRound(r.dialect, n))
	}
	return r, nil
}

// fields is a mapping whose keys are known.
type fields struct {
	what string
	node node
}

// object checks that n is a mapping with known keys only.
func object(n node, what string, known ...string) fields {
	if n.kind != "a mapping" {
		fail(n.pos, "its keys are "+strings.Join(known, ", "), "%s must be a mapping, not %s", what, n.kind)
	}
	for _, e := range n.entries {
		if !slices.Contains(known, e.key) {
			fail(e.pos, hint(e.key, known), "unknown key %q in %s", e.key, what)
		}
	}
	return fields{what, n}
}

// hint names what was probably meant.
func hint(got string, known []string) string {
	best, most := "", 3
	for _, k := range known {
		if d := distance(got, k); d < most {
			best, most = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "one of " + strings.Join(known, ", ")
}

// distance counts the letters to change, insert or take out to get from a to b.
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func (f fields) find(key string) (node, bool) {
	for _, e := range f.node.entries {
		if e.key == key {
			return e.value, true
		}
	}
	return node{}, false
}

func (f fields) has(key string) bool { _, ok := f.find(key); return ok }

func (f fields) get(key string) node { n, _ := f.find(key); return n }

func (f fields) require(keys ...string) {
	for _, k := range keys {
		if !f.has(k) {
			fail(f.node.pos, "add "+k+":", "%s has no %q", f.what, k)
		}
	}
}

// str returns a string, "" when the key is absent.
func (f fields) str(key string) string {
	n, ok := f.find(key)
	if !ok {
		return ""
	}
	if n.kind != "a string" {
		fail(n.pos, "put it in quotes", "%s must be a string, not %s", key, n.kind)
	}
	return n.text
}

// number returns a whole number from least to most, or the default when the key is absent.
func (f fields) number(key string, absent, least, most int) int {
	n, ok := f.find(key)
	if !ok {
		return absent
	}
	v, err := strconv.Atoi(n.text)
	if n.kind != "a number" || err != nil {
		fail(n.pos, "", "%s must be a whole number, not %s", key, describe(n))
	}
	if v < least || v > most {
		fail(n.pos, "", "%s must be from %d to %d, not %d", key, least, most, v)
	}
	return v
}

func describe(n node) string {
	if n.kind == "a number" || n.kind == "a boolean" || n.kind == "a string" && len(n.text) < 40 {
		return strconv.Quote(n.text)
	}
	return n.kind
}

func (f fields) duration(key string, most time.Duration) time.Duration {
	n, ok := f.find(key)
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(n.text)
	if n.kind != "a string" && n.text != "0" || err != nil {
		fail(n.pos, "write 300ms or 2s", "%s must be a duration, not %s", key, describe(n))
	}
	if d < 0 || d > most {
		fail(n.pos, "", "%s must be from 0 to %s, not %s", key, most, d)
	}
	return d
}

// choice returns one of the values, or the default when the key is absent.
func (f fields) choice(key, absent string, values ...string) string {
	n, ok := f.find(key)
	if !ok {
		return absent
	}
	if n.kind != "a string" || !slices.Contains(values, n.text) {
		fail(n.pos, hint(n.text, values), "%s must not be %s", key, describe(n))
	}
	return n.text
}

var finishes = []string{string(writ.FinishStop), string(writ.FinishTools), string(writ.FinishLength), string(writ.FinishFilter),
	string(writ.FinishRefused), string(writ.FinishCut)}

var errorClasses = []writ.ErrorClass{writ.ErrorOverloaded, writ.ErrorRateLimit, writ.ErrorContextLimit, writ.ErrorAuth,
	writ.ErrorInvalid, writ.ErrorNetwork, writ.ErrorInternal}

func parseRound(dialect writ.Dialect, n node) round {
	f := object(n, "a round", "text", "parts", "chunk_bytes", "chunk_delay", "finish", "usage", "expect")
	r := round{pieces: f.number("chunk_bytes", 0, 1, MaxBytes), delay: f.duration("chunk_delay", MaxDelay)}
	values := slices.Clone(finishes)
	for _, c := range errorClasses {
		values = append(values, "error:"+string(c))
	}
	finish := f.choice("finish", "", values...)
	if class, ok := strings.CutPrefix(finish, "error:"); ok {
		r.fails = writ.ErrorClass(class)
	}
	r.finish = writ.Finish(finish)
	broken := r.fails != "" || r.finish == writ.FinishCut
	switch {
	case f.has("text") && f.has("parts"):
		fail(f.node.pos, "keep one of them", "a round has both text and parts")
	case f.has("text"):
		r.steps = whole(writ.ModelText, 0, f.str("text"), "", !broken)
	case f.has("parts"):
		p := parts{dialect: dialect, next: -1, blocks: map[int]*block{}}
		r.steps = p.parse(f.get("parts"))
		if finish == "" && p.calls {
			r.finish = writ.FinishTools
		}
	case !broken && finish != string(writ.FinishRefused) && finish != string(writ.FinishFilter):
		fail(f.node.pos, "add text: or parts:", "a round has nothing to say")
	}
	if r.finish == "" {
		r.finish = writ.FinishStop
	}
	if f.has("usage") {
		u := object(f.get("usage"), "usage", "input", "output", "cache_read", "cache_write")
		const most = 1 << 40
		r.usage = writ.Usage{Input: u.number("input", 0, 0, most), Output: u.number("output", 0, 0, most),
			CacheRead: u.number("cache_read", 0, 0, most), CacheWrite: u.number("cache_write", 0, 0, most)}
	}
	if f.has("expect") {
		list := f.get("expect")
		if list.kind != "a list" {
			fail(list.pos, `write ["a substring of the request"]`, "expect must be a list of strings, not %s", list.kind)
		}
		for _, e := range list.items {
			if e.kind != "a string" || e.text == "" {
				fail(e.pos, "put it in quotes", "expect must hold strings, not %s", describe(e))
			}
			r.expect = append(r.expect, e.text)
		}
	}
	return r
}

// whole is a block of text or thinking.
func whole(kind writ.ModelEventKind, n int, text, signature string, ends bool) []step {
	var out []step
	if text != "" {
		out = append(out, step{event: writ.ModelEvent{Kind: kind, Block: n, Text: text}})
	}
	if ends {
		out = append(out, step{event: writ.ModelEvent{Kind: writ.ModelBlockEnd, Block: n, Opaque: opaque(signature)}})
	}
	return out
}

// parts reads the parts of one round.
type parts struct {
	dialect writ.Dialect
	blocks  map[int]*block
	next    int          // the highest block number so far
	given   map[int]bool // numbers that some part of the round gives itself
	calls   bool
	steps   []step
}

// block is what a round has done with one block number.
type block struct {
	named, closed bool
}

const maxBlock = 1 << 20

func (p *parts) parse(list node) []step {
	if list.kind != "a list" {
		fail(list.pos, "write one entry for each part", "parts must be a list, not %s", list.kind)
	}
	p.given = givenNumbers(list)
	for _, n := range list.items {
		f := object(n, "a part", "thinking", "text", "open", "args", "close", "wait", "block", "signature", "unclosed")
		var kinds []string
		for _, k := range []string{"thinking", "text", "open", "args", "close", "wait"} {
			if f.has(k) {
				kinds = append(kinds, k)
			}
		}
		if len(kinds) != 1 {
			fail(n.pos, "write exactly one of thinking, text, open, args, close, wait", "a part has %d of them", len(kinds))
		}
		p.part(kinds[0], f)
	}
	return p.steps
}

// givenNumbers finds the block numbers that the parts give, so that a part without one is in nobody's way.
func givenNumbers(list node) map[int]bool {
	out := map[int]bool{}
	var walk func(n node)
	walk = func(n node) {
		for _, it := range n.items {
			walk(it)
		}
		for _, m := range n.entries {
			if v, err := strconv.Atoi(m.value.text); m.key == "block" && err == nil {
				out[v] = true
			}
			walk(m.value)
		}
	}
	walk(list)
	return out
}

func (p *parts) part(kind string, f fields) {
	prose := kind == "text" || kind == "thinking"
	for _, k := range []string{"block", "signature", "unclosed"} {
		if f.has(k) && (!prose || k == "signature" && kind != "thinking") {
			fail(f.get(k).pos, "", "%s does not belong to a part with %s", k, kind)
		}
	}
	switch {
	case kind == "wait":
		p.steps = append(p.steps, step{wait: f.duration("wait", MaxWait)})
	case prose:
		p.prose(kind, f)
	case p.dialect == writ.Channel:
		fail(f.node.pos, "write <channel:action> in text, or dialect: native", "%s belongs to the native dialect", kind)
	default:
		p.call(kind, f)
	}
}

func (p *parts) prose(kind string, f fields) {
	free := p.next + 1
	for p.given[free] {
		free++
	}
	n := f.number("block", free, 0, maxBlock+len(p.given))
	if p.blocks[n] != nil {
		fail(f.get("block").pos, "use another number", "block %d stands twice in a round", n)
	}
	unclosed := false
	if v, ok := f.find("unclosed"); ok {
		if unclosed = v.text == "true"; v.kind != "a boolean" {
			fail(v.pos, "write true or false", "unclosed must be a boolean, not %s", describe(v))
		}
	}
	event := writ.ModelText
	if kind == "thinking" {
		event = writ.ModelThinking
	}
	p.blocks[n], p.next = &block{closed: true}, max(p.next, n)
	p.steps = append(p.steps, whole(event, n, f.str(kind), f.str("signature"), !unclosed)...)
}

// call reads a part of a tool call.
func (p *parts) call(kind string, outer fields) {
	keys := map[string][]string{"open": {"block", "id", "tool"}, "args": {"block", "text"}, "close": {"block"}}[kind]
	f := object(outer.get(kind), kind, keys...)
	f.require("block")
	n := f.number("block", 0, 0, maxBlock)
	at, b := f.get("block").pos, p.blocks[n]
	switch {
	case b == nil && kind != "open":
		fail(at, "open it first", "%s of block %d, which was not opened", kind, n)
	case b != nil && b.closed && kind == "open":
		fail(at, "use another number", "block %d stands twice in a round", n)
	case b != nil && b.closed:
		fail(at, "", "%s of block %d, which was closed", kind, n)
	case b != nil && kind == "open" && b.named:
		fail(at, "close it first; only a call without a tool yet may be opened again, to name it", "block %d is open", n)
	case b == nil:
		b = &block{}
		p.blocks[n], p.next, p.calls = b, max(p.next, n), true
	}
	e := writ.ModelEvent{Block: n}
	switch kind {
	case "open":
		e.Kind, e.ID, e.Name = writ.ModelToolOpen, f.str("id"), f.str("tool")
		b.named = e.Name != ""
	case "args":
		f.require("text")
		e.Kind, e.Text = writ.ModelToolArgs, f.str("text")
	case "close":
		e.Kind, b.closed = writ.ModelBlockEnd, true
	}
	p.steps = append(p.steps, step{event: e})
}
