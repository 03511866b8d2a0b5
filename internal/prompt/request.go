package prompt

import (
	"crypto/sha256"
	"fmt"

	"writ"
	"writ/internal/timeline"
)

// tailRounds is how many rounds stand between the cache point before the tail and the tail.
const tailRounds = 4

// Kit is what the cached system block and the tool list say: the same for all rounds of a turn.
type Kit struct {
	System string
	Tools  []writ.ToolDef // native dialect; sorted

	names  map[string]string // native dialect: tool id → the name a provider sees
	digest string
	doc    []byte
}

// Request renders the model request: cached system block, timeline with up to three cache points, and the tail, which
// no cache point follows.
func (r *Renderer) Request(kit Kit, model, call, tail string, noTools bool) *writ.ModelRequest {
	req := &writ.ModelRequest{Model: model, Dialect: r.dialect, Call: call, NoTools: noTools, Tools: kit.Tools,
		System: []writ.Part{{Kind: writ.PartText, Text: kit.System, Cache: true}}}
	n := 0
	for i := range r.segs {
		n += len(r.segs[i].msgs)
	}
	req.Messages = make([]writ.Message, 0, n+1)
	points := r.cachePoints()
	for i := range r.segs {
		req.Messages = append(req.Messages, r.segs[i].msgs...)
		if points[i] {
			mark(req.Messages)
		}
	}
	if tail != "" {
		req.Messages = append(req.Messages, writ.Message{Role: writ.RoleUser, Parts: []writ.Part{{Kind: writ.PartText, Text: r.esc(tail)}}})
	}
	return req
}

// mark sets a cache point after the last part, on a copy: the rendered segment stays as it is.
func mark(msgs []writ.Message) {
	last := &msgs[len(msgs)-1]
	parts := make([]writ.Part, len(last.Parts))
	copy(parts, last.Parts)
	parts[len(parts)-1].Cache = true
	last.Parts = parts
}

// cachePoints picks up to three segments: the end of the previous turn, four rounds before the tail, the tail.
func (r *Renderer) cachePoints() map[int]bool {
	points := map[int]bool{}
	n := len(r.segs)
	if n == 0 {
		return points
	}
	points[n-1] = true
	if i := r.preTail(); i >= 0 {
		points[i] = true
	}
	for i := n - 1; i >= 0; i-- {
		if r.segs[i].turn != r.turn {
			points[i] = true
			break
		}
	}
	return points
}

// preTail is the last segment before the newest four rounds, or -1.
func (r *Renderer) preTail() int {
	seen, last, lastTurn := 0, 0, ""
	for i := len(r.segs) - 1; i >= 0; i-- {
		s := &r.segs[i]
		if s.round == 0 {
			continue
		}
		if s.round != last || s.turn != lastTurn {
			seen++
			last, lastTurn = s.round, s.turn
		}
		if seen > tailRounds {
			return i
		}
	}
	return -1
}

// Prefix tells how much of the cached part of a request is the same as its predecessor's. Call it once per request;
// the record becomes a timeline block with the call's usage.
type Prefix struct {
	bytes []int      // cumulative, by section
	sums  [][32]byte // by section: system, tools, then segments
}

// Prefix compares this renderer's state with prev, the value of the request before (nil: only the stored record of an
// earlier turn is known). Announced and Reason say that a break was expected, and by what.
func (r *Renderer) Prefix(kit Kit, prev *Prefix) (*Prefix, timeline.Request) {
	cur, sys, tools := r.sections(kit, len(r.segs))
	rec := r.record(kit, cur, sys, tools)
	switch {
	case prev != nil:
		r.comparePrev(cur, prev, &rec)
	case r.haveReq:
		r.compareStored(cur, &rec)
	}
	if rec.Break != "" && r.rewrite != "" {
		rec.Announced, rec.Reason = true, r.rewrite
	}
	r.rewrite = ""
	return cur, rec
}

// sections are the cached parts of a request: system, tools, then the first n segments.
func (r *Renderer) sections(kit Kit, n int) (cur *Prefix, system, tools [32]byte) {
	cur = &Prefix{sums: make([][32]byte, 0, n+2), bytes: make([]int, 0, n+2)}
	total := 0
	section := func(sum [32]byte, n int) {
		total += n
		cur.sums = append(cur.sums, sum)
		cur.bytes = append(cur.bytes, total)
	}
	system = sha256.Sum256([]byte(kit.System))
	h := sha256.New()
	size := 0
	for _, t := range kit.Tools {
		n, _ := fmt.Fprintf(h, "%q %q %s\n", t.Name, t.Description, t.Schema)
		size += n
	}
	h.Sum(tools[:0])
	section(system, len(kit.System))
	section(tools, size)
	for i := range r.segs[:n] {
		section(r.segs[i].sum, r.segs[i].bytes)
	}
	return cur, system, tools
}

// record describes the sections of a request.
func (r *Renderer) record(kit Kit, cur *Prefix, system, tools [32]byte) timeline.Request {
	n := len(cur.sums)
	rec := timeline.Request{Bytes: cur.bytes[n-1], Segments: n - 2, PrefixHash: cur.hash(n), Kit: kit.digest,
		SystemHash: fmt.Sprintf("%x", system[:8]), ToolsHash: fmt.Sprintf("%x", tools[:8])}
	rec.Estimate = r.weigh(kit, rec.Segments) / CharsPerToken
	return rec
}

func (p *Prefix) hash(n int) string {
	h := sha256.New()
	for _, s := range p.sums[:n] {
		h.Write(s[:])
	}
	return hexSum(h)
}

func (r *Renderer) comparePrev(cur, prev *Prefix, rec *timeline.Request) {
	same := 0
	for same < len(cur.sums) && same < len(prev.sums) && cur.sums[same] == prev.sums[same] {
		same++
	}
	if same > 0 {
		rec.PrefixBytes = cur.bytes[same-1]
	}
	if same < len(prev.sums) {
		rec.Break = r.sectionName(same)
	}
}

// compareStored compares with the last request of an earlier turn, of which only hashes are kept.
func (r *Renderer) compareStored(cur *Prefix, rec *timeline.Request) {
	old := r.last
	n := old.Segments + 2
	switch {
	case old.SystemHash != rec.SystemHash:
		rec.Break = "system"
	case old.ToolsHash != rec.ToolsHash:
		rec.Break, rec.PrefixBytes = "tools", cur.bytes[0]
	case n > len(cur.sums) || cur.hash(n) != old.PrefixHash:
		rec.Break, rec.PrefixBytes = "timeline", cur.bytes[1]
	default:
		rec.PrefixBytes = cur.bytes[n-1]
	}
}

func (r *Renderer) sectionName(i int) string {
	switch {
	case i == 0:
		return "system"
	case i == 1:
		return "tools"
	case i-2 < len(r.segs):
		return fmt.Sprintf("timeline segment %d (round %d)", i-2, r.segs[i-2].round)
	}
	return "timeline is shorter"
}
