package admission_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"writ/admission"
	"writ/store/memory"
)

// Each class is one value in many spellings. All spellings of a class have one form, and no two classes share it.
var valueClasses = [][]string{
	{`null`, " null\n"},
	{`true`}, {`false`}, {`"true"`}, {`"null"`}, {`""`},
	{`0`, `-0`, `0.0`, `0e9`, `-0.000E-5`},
	{`1`, `1.0`, `1e0`, `10e-1`, `0.1e1`, `1E+0`},
	{`-1`, `-1.00`}, {`"1"`}, {`[1]`, `[ 1.0 ]`},
	{`100`, `1e2`, `1E+2`, `100.000`}, {`1000`, `1e3`},
	{`0.1`, `1e-1`, `100e-3`}, {`0.10000000000000001`}, {`0.1000000000000000055511151231257827`},
	{`9007199254740992`}, {`9007199254740993`, `9007199254740993.0`}, {`9007199254740994`},
	{`1e400`, `10e399`}, {`1e401`}, {`1e-400`}, {`1e999999999999999999`},
	{`[]`, "[\n]"}, {`{}`, `{ }`}, {`[[]]`}, {`[{}]`}, {`[null]`}, {`[0]`, `[-0.0]`}, {`[""]`},
	{`[1,2]`, "[1 ,\t2e0]"}, {`[2,1]`}, {`[12]`}, {`[1,[2]]`}, {`[[1],2]`}, {`[[1,2]]`},
	{`{"a":1,"b":2}`, `{"b":2.0,"a":1}`, `{ "\u0061" : 1 , "b":2 }`}, {`{"a":2,"b":1}`}, {`{"a":1}`}, {`{"a":1,"b":null}`}, {`{"ab":12}`},
	{`{"a":{"b":1}}`}, {`{"a":[{"b":1}]}`}, {`{"":1}`}, {`{"a":""}`}, {`{"a:1,b":2}`}, {`{"a\":1,\"b":2}`},
	{`"a"`, `"\u0061"`}, {`"A"`, `"\u0041"`}, {`"\u0000"`}, {`"\n"`, `"\u000a"`, `"\u000A"`}, {`"\\n"`, `"\u005cn"`}, {`"\/"`, `"/"`},
	{`"\""`, `"\u0022"`}, {`"\\"`}, {`"\\\""`}, {`"\b\f\r\t"`, `"\u0008\u000c\u000d\u0009"`},
	{`"é"`, `"\u00e9"`}, {`"e\u0301"`, `"e` + "\u0301" + `"`}, // one letter, and a letter with an accent
	{`"😀"`, `"\ud83d\ude00"`, `"\uD83D\uDE00"`}, {`"\ud83d"`}, {`"\ude00"`}, {`"\ude00\ud83d"`}, {`"\ud83d\ud83d"`}, {`"\ud83dx"`},
	{`"�"`, `"\ufffd"`}, {"\"\xff\""}, {"\"\xfe\""}, {`"\u2028"`, "\"\u2028\""}, {`"<"`, `"\u003c"`},
	{`"K"`}, {`"` + "\u212a" + `"`}, {`" "`}, {`"` + "\u00a0" + `"`}, {`"  "`},
}

func TestCanonical(t *testing.T) {
	forms := map[string]string{}
	for _, class := range valueClasses {
		first := ""
		for i, in := range class {
			c, err := admission.Canonical(json.RawMessage(in))
			if err != nil {
				t.Errorf("%s: %v", in, err)
				continue
			}
			if i == 0 {
				first = string(c)
				if other, taken := forms[first]; taken {
					t.Errorf("%s and %s are both %s", in, other, first)
				}
				forms[first] = in
			} else if string(c) != first {
				t.Errorf("%s is %s, and %s is %s", in, c, class[0], first)
			}
		}
	}
}

func TestCanonicalRefuses(t *testing.T) {
	nest := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	if _, err := admission.Canonical(json.RawMessage(nest(129))); err != nil {
		t.Errorf("depth 128: %v", err)
	}
	for _, in := range []string{``, ` `, `{`, `[1,]`, `{"a":1,}`, `01`, `1.`, `.5`, `+1`, `1e`, `NaN`, `nul`, `"`, `"\x"`, `"\u12"`, "\"\n\"", `1 2`, `{a:1}`, `'a'`,
		`{"a":1,"a":1}`, `{"a":1,"\u0061":2}`, `[{"x":{"b":1,"a":2,"b":3}}]`, nest(130), nest(100_000), strings.Repeat(`{"a":`, 130) + `1` + strings.Repeat(`}`, 130),
		`1e1000000000000000000000`, `1e-1000000000000000000000`} {
		if c, err := admission.Canonical(json.RawMessage(in)); err == nil {
			t.Errorf("%.40s has the form %.40s", in, c)
		} else if !strings.HasPrefix(err.Error(), "admission: canonical form: ") || len(err.Error()) > 200 {
			t.Errorf("%.40s: %v", in, err)
		}
	}
}

// Values as JSON sees them: objects with unique keys, exact numbers.
func drawValue(depth int) *rapid.Generator[any] {
	leaves := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.Map(rapid.Bool(), func(b bool) any { return b }), rapid.Map(rapid.String(), func(s string) any { return s }),
		rapid.Map(rapid.Int64(), func(n int64) any { return json.Number(fmt.Sprint(n)) }),
		rapid.Map(rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,20})?([eE][-+]?[0-9]{1,5})?`), func(s string) any { return json.Number(s) }),
	}
	if depth == 0 {
		return rapid.OneOf(leaves...)
	}
	return rapid.OneOf(append(leaves,
		rapid.Map(rapid.SliceOfN(drawValue(depth-1), 0, 4), func(v []any) any { return v }),
		rapid.Map(rapid.MapOfN(rapid.String(), drawValue(depth-1), 0, 4), func(v map[string]any) any { return v }))...)
}

// spell writes a value in some spelling: any order of keys, any white space, any escapes, numbers with more zeros.
func spell(r *rand.Rand, b *bytes.Buffer, v any) {
	space := func() { b.WriteString([]string{"", "", " ", "\n\t", "\r\n"}[r.IntN(5)]) }
	str := func(s string) {
		b.WriteByte('"')
		for _, c := range s {
			switch {
			case c > 0xffff && r.IntN(2) == 0:
				fmt.Fprintf(b, `\u%04x\u%04X`, 0xd800+(c-0x10000)>>10, 0xdc00+(c-0x10000)&0x3ff)
			case c < 0x20 || c == '"' || c == '\\' || c <= 0xffff && r.IntN(3) == 0:
				fmt.Fprintf(b, []string{`\u%04x`, `\u%04X`}[r.IntN(2)], c)
			default:
				b.WriteRune(c)
			}
		}
		b.WriteByte('"')
	}
	space()
	defer space()
	switch v := v.(type) {
	case json.Number:
		b.WriteString(respell(r, string(v)))
	case string:
		str(v)
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			spell(r, b, e)
		}
		space()
		b.WriteByte(']')
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		b.WriteByte('{')
		for i, k := range keys {
			if i > 0 {
				b.WriteByte(',')
			}
			space()
			str(k)
			space()
			b.WriteByte(':')
			spell(r, b, v[k])
		}
		space()
		b.WriteByte('}')
	default:
		j, _ := json.Marshal(v)
		b.Write(j)
	}
}

// respell gives a number more zeros behind the point, or an exponent that changes nothing.
func respell(r *rand.Rand, n string) string {
	if strings.ContainsAny(n, "eE") {
		return n
	}
	if !strings.Contains(n, ".") {
		n += ".0"
	}
	n += strings.Repeat("0", r.IntN(4))
	return n + []string{"", "e0", "E+0", "e-0", "e000"}[r.IntN(5)]
}

func TestCanonicalIgnoresSpelling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawValue(3).Draw(t, "value")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		plain, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var other bytes.Buffer
		spell(r, &other, v)
		a, err := admission.Canonical(plain)
		if err != nil {
			t.Fatalf("%s: %v", plain, err)
		}
		b, err := admission.Canonical(other.Bytes())
		if err != nil {
			t.Fatalf("%s: %v", other.Bytes(), err)
		}
		if !bytes.Equal(a, b) {
			t.Fatalf("%s\nis %s\n%s\nis %s", plain, a, other.Bytes(), b)
		}
	})
}

// Two values have one form only if they are equal by another reading: encoding/json's, with numbers as exact fractions.
func TestCanonicalTellsValuesApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, w := drawValue(2).Draw(t, "one"), drawValue(2).Draw(t, "other")
		if rapid.Bool().Draw(t, "near") {
			w = near(rapid.IntRange(0, 1<<20).Draw(t, "where"), v)
		}
		x, _ := json.Marshal(v)
		y, _ := json.Marshal(w)
		a, err := admission.Canonical(x)
		b, err2 := admission.Canonical(y)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		if equal := reflect.DeepEqual(exact(v), exact(w)); equal != bytes.Equal(a, b) {
			t.Fatalf("%s and %s: equal %v, forms %s and %s", x, y, equal, a, b)
		}
	})
}

// near changes one leaf, or nothing.
func near(at int, v any) any {
	switch v := v.(type) {
	case []any:
		if len(v) > 0 {
			out := slices.Clone(v)
			i := at % len(v)
			out[i] = near(at/len(v), v[i])
			return out
		}
		return []any{nil}
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			out[k] = near(at, e)
		}
		return out
	case string:
		return v + []string{"", "\x00", " ", `"`, `\`, "\u0301"}[at%6]
	case json.Number:
		return json.Number([]string{string(v), "-" + strings.TrimPrefix(string(v), "-"), "1" + strings.TrimPrefix(string(v), "-")}[at%3])
	}
	return v
}

// exact replaces numbers by what they are.
func exact(v any) any {
	switch v := v.(type) {
	case []any:
		out := []any{}
		for _, e := range v {
			out = append(out, exact(e))
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			out[k] = exact(e)
		}
		return out
	case json.Number:
		return number(string(v))
	}
	return v
}

// FuzzCanonical: no panic on anything; what has a form has the same one after encoding/json has spelled it anew, and
// what encoding/json reads as another value has another.
func FuzzCanonical(f *testing.F) {
	for _, class := range valueClasses {
		for _, in := range class {
			f.Add([]byte(in), []byte(class[0]))
		}
	}
	f.Add([]byte(`{"b":[1,2.50,{"z":null}],"a":"x"}`), []byte(`{"a":"x","b":[1,2.5,{"z":null}]}`))
	f.Fuzz(func(t *testing.T, x, y []byte) {
		a, err := admission.Canonical(x)
		if err != nil {
			return
		}
		v, plain := decode(x)
		if plain {
			var again bytes.Buffer
			spell(rand.New(rand.NewPCG(uint64(len(x)), 1)), &again, v)
			if b, err := admission.Canonical(again.Bytes()); err != nil || !bytes.Equal(a, b) {
				t.Errorf("%q is %q; spelled anew as %q it is %q (%v)", x, a, again.Bytes(), b, err)
			}
		}
		b, err := admission.Canonical(y)
		if err != nil {
			return
		}
		w, plain2 := decode(y)
		if equal := reflect.DeepEqual(exact(v), exact(w)); plain && plain2 && equal != bytes.Equal(a, b) {
			t.Errorf("%q and %q: equal %v, forms %q and %q", x, y, equal, a, b)
		}
	})
}

// decode reads JSON by the standard library. plain is false for what it does not keep: bytes that are not UTF-8 and
// lone surrogates become U+FFFD there, so a text with one says nothing; and numbers too long to compare.
func decode(in []byte) (v any, plain bool) {
	d := json.NewDecoder(bytes.NewReader(in))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, false
	}
	return v, !strings.Contains(fmt.Sprintf("%q", v), "\ufffd")
}

// Digests are keyed, each kind under its own label, and parts cannot run into each other.
func TestDigests(t *testing.T) {
	ledger := func(key string) *admission.Ledger {
		return admission.New(admission.Config{Store: memory.Open(), Key: []byte(key)})
	}
	l := ledger("one key of a tenant")
	params := json.RawMessage(`{"n":1}`)
	args, err := l.ArgumentDigest(params)
	if err != nil {
		t.Fatal(err)
	}
	finger, err := l.Fingerprint("a.b", params)
	if err != nil {
		t.Fatal(err)
	}
	bare, _ := l.Fingerprint("", params)
	canonical, _ := admission.Canonical(params)
	all := map[string]string{"arguments": args, "fingerprint": finger, "fingerprint of no tool": bare, "result": l.ResultDigest(canonical),
		"no result": l.ResultDigest(nil)}
	seen := map[string]string{}
	for name, d := range all {
		if len(d) != 64 || seen[d] != "" {
			t.Errorf("%s is %s, like %q", name, d, seen[d])
		}
		seen[d] = name
	}
	same := json.RawMessage(`{ "n" : 1.0 }`)
	if d, _ := l.ArgumentDigest(same); d != args {
		t.Error("arguments in another spelling have another digest")
	}
	if d, _ := l.Fingerprint("a.b", same); d != finger {
		t.Error("arguments in another spelling have another fingerprint")
	}
	if d, _ := ledger("another key").ArgumentDigest(params); d == args {
		t.Error("another tenant has the same digest")
	}
	if first(l.Fingerprint("a", json.RawMessage(`11`))) == first(l.Fingerprint("a1", json.RawMessage(`1`))) {
		t.Error("the tool's name runs into the arguments")
	}
	for _, bad := range []string{``, `{"a":1,"a":2}`} {
		if _, err := l.ArgumentDigest(json.RawMessage(bad)); err == nil {
			t.Errorf("%q has an argument digest", bad)
		}
		if _, err := l.Fingerprint("a.b", json.RawMessage(bad)); err == nil {
			t.Errorf("%q has a fingerprint", bad)
		}
	}
}

func first(s string, _ error) string { return s }

// Rows hold digests and codes; nothing of what was asked for or answered.
func TestRowHoldsNoContent(t *testing.T) {
	w, p := newPort()
	const secret = "hunter2"
	digest, err := w.ledger.ArgumentDigest(json.RawMessage(`{"password":"` + secret + `"}`))
	if err != nil {
		t.Fatal(err)
	}
	r := request(p, "x")
	r.ArgumentDigest = digest
	d := p.Admit(ctx, r, admission.Slot{Tool: "desk.a"}, callBlock)
	must(t, d.Admitted, d.Refusal)
	row, _ := p.Row(d.ActionID)
	if text := fmt.Sprintf("%+v", row); strings.Contains(text, secret) || row.ArgumentDigest != digest || len(row.IdempotencyKey) != 32 {
		t.Errorf("%s", text)
	}
	if found, ok := p.Lookup("x"); !ok || found.ID != row.ID {
		t.Errorf("Lookup: %+v %v", found, ok)
	}
	if _, ok := p.Lookup("y"); ok {
		t.Error("Lookup finds a call that is none")
	}
}

// number is an independent reading of a JSON number: sign, digits and power of ten, by shifting the point in the text.
func number(s string) string {
	sign := ""
	if rest, neg := strings.CutPrefix(s, "-"); neg {
		sign, s = "-", rest
	}
	exp := new(big.Int)
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		exp.SetString(strings.TrimPrefix(s[i+1:], "+"), 10)
		s = s[:i]
	}
	whole, frac, _ := strings.Cut(s, ".")
	digits := whole + frac
	exp.Sub(exp, big.NewInt(int64(len(frac))))
	for strings.HasSuffix(digits, "0") {
		digits = digits[:len(digits)-1]
		exp.Add(exp, big.NewInt(1))
	}
	digits = strings.TrimLeft(digits, "0")
	if digits == "" {
		return "number 0"
	}
	return fmt.Sprintf("number %s%s * 10^%s", sign, digits, exp)
}
