package http

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.uber.org/goleak"

	"writ"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, cfg Config) *Tools {
	t.Helper()
	if cfg.Alias == "" {
		cfg.Alias = "pets"
	}
	tools, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tools.Close(); err != nil {
			t.Error(err)
		}
	})
	return tools
}

func specs(t *testing.T, tools *Tools) (map[string]writ.ToolSpec, []writ.Problem) {
	t.Helper()
	list, problems, err := tools.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(list, func(a, b writ.ToolSpec) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("not sorted")
	}
	out := map[string]writ.ToolSpec{}
	for _, s := range list {
		out[s.Name] = s
	}
	return out, problems
}

// accepts holds arguments against a tool's schema as the runtime does.
func accepts(t *testing.T, spec writ.ToolSpec, args string, want bool) {
	t.Helper()
	parse := func(text string) any {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("tool:///schema.json", parse(string(spec.Schema))); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("tool:///schema.json")
	if err != nil {
		t.Fatalf("%s: %v\n%s", spec.Name, err, spec.Schema)
	}
	if err := s.Validate(parse(args)); (err == nil) != want {
		t.Errorf("%s with %s: %v, want valid %v\n%s", spec.Name, args, err, want, spec.Schema)
	}
}

func TestOpenAPI30(t *testing.T) {
	tools, problems := specs(t, open(t, Config{Spec: "testdata/pets-3.0.yaml"}))
	var names []string
	for name, s := range tools {
		names = append(names, name)
		want := writ.Exploitation
		if name == "listPets" || name == "headPet" || name == "styles" || strings.HasPrefix(name, "get_") {
			want = writ.Exploration
		}
		if s.Declared == nil || s.Declared.Strategy == nil || *s.Declared.Strategy != want || s.Declared.Execution != nil {
			t.Errorf("%s declares %+v", name, s.Declared)
		}
		if len(s.Definition) != 64 {
			t.Errorf("%s has the definition %q", name, s.Definition)
		}
	}
	slices.Sort(names)
	if want := []string{"create_pet_new", "deletePet", "get_pets_petId", "headPet", "listPets", "replacePet", "styles"}; !slices.Equal(names, want) {
		t.Errorf("tools %v, want %v", names, want)
	}
	var said []string
	for _, p := range problems {
		said = append(said, p.Tool+": "+p.Message)
	}
	for _, want := range []string{
		"upload: POST /upload is left out: its request body is multipart/form-data, and only JSON is supported",
		"same_name: GET /twice/a is left out: 2 operations have this name", "same_name: GET /twice/b is left out: 2 operations have this name",
		"lost: GET /lost/{id} is left out: its path has {id}, but there is no such parameter",
		"elsewhere: GET /elsewhere is left out: it has a server of its own (hint: set url, then all operations go there)",
		"trace: TRACE /trace is left out: the method TRACE is not supported",
		`create_pet_new: not everything of its schema can be checked here: the pattern "^(?!cat)"`,
	} {
		if !slices.Contains(said, want) {
			t.Errorf("%q is missing in\n%s", want, strings.Join(said, "\n"))
		}
	}
	if len(said) != 7 {
		t.Errorf("problems:\n%s", strings.Join(said, "\n"))
	}
	if d := tools["listPets"].Description; d != "List pets\n\nNewest first.\n\nGET /pets" {
		t.Errorf("description %q", d)
	}
	if d := tools["deletePet"].Description; !strings.HasPrefix(d, "Deprecated.") {
		t.Errorf("description %q", d)
	}
	list := tools["listPets"]
	accepts(t, list, `{"limit":1,"X-Api-Key":"k","query_body":"b","page_size":3,"X-Trace":"t"}`, true)
	accepts(t, list, `{"limit":0,"X-Api-Key":"k"}`, false) // exclusiveMinimum: true
	accepts(t, list, `{}`, false)                          // X-Api-Key is required
	accepts(t, list, `{"Authorization":"x","X-Api-Key":"k"}`, false)
	create := tools["create_pet_new"]
	accepts(t, create, `{"body":{"name":"x"}}`, true) // id is readOnly, so neither required nor allowed
	accepts(t, create, `{"body":{"name":"x","id":1}}`, false)
	accepts(t, create, `{"body":{}}`, false)
	accepts(t, create, `{}`, false)
	accepts(t, create, `{"body":{"name":"x","nick":null}}`, true)
	accepts(t, create, `{"body":{"name":"x","nick":"c"}}`, false)
	accepts(t, create, `{"body":{"name":"x","age":30}}`, false)
	accepts(t, create, `{"body":{"name":"x","keeper":null}}`, true)
	accepts(t, create, `{"body":{"name":"x","keeper":{"pets":[{"name":"y","parent":{"name":"z"}}]}}}`, true)
	accepts(t, create, `{"body":{"name":"x","keeper":{"pets":[{"name":"y","parent":{"name":""}}]}}}`, false)
	replace := tools["replacePet"]
	accepts(t, replace, `{"petId":"p","query_petId":"q"}`, true)
	accepts(t, replace, `{"petId":"p","body":{"before":{"kind":"cat"}}}`, true)
	accepts(t, replace, `{"petId":"p","body":{"before":{"kind":"cow"}}}`, false)
}

func TestOpenAPI31(t *testing.T) {
	tools, problems := specs(t, open(t, Config{Spec: "testdata/pets-3.1.yaml"}))
	if len(tools) != 2 || len(problems) != 1 || problems[0].Tool != "dynamic" {
		t.Errorf("%d tools, problems %+v", len(tools), problems)
	}
	create := tools["createPet"]
	for args, want := range map[string]bool{
		`{"name":null}`: true, `{"name":1}`: false, `{"name":"x","kind":"cat"}`: false, `{"kind":"dog","name":"x"}`: true,
		`{"name":"x","size":0}`: false, `{"name":"x","size":2}`: true, `{"name":"x","size":true}`: false,
		`{"name":"x","tags":["x"]}`: true, `{"name":"x","tags":["y"]}`: false, `{"name":"x","tags":["x","y"]}`: false,
		`{"name":"x","friends":{"f_1":{"name":"y"}}}`: true, `{"name":"x","friends":{"g":{}}}`: false,
		`{"name":"x","parent":{"name":"y"}}`: true, `{"name":"x","parent":{}}`: false,
	} {
		accepts(t, create, `{"body":`+args+`}`, want)
	}
	accepts(t, tools["listPets"], `{"limit":0}`, false)
	accepts(t, tools["listPets"], `{"limit":5,"anything":[1]}`, true)
	again, _ := specs(t, open(t, Config{Spec: "testdata/pets-3.1.yaml"}))
	for name, s := range tools {
		if again[name].Definition != s.Definition || string(again[name].Schema) != string(s.Schema) {
			t.Errorf("%s is not the same twice", name)
		}
	}
}

func writeSpec(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "spec.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const head = "openapi: 3.0.0\ninfo: {title: t, version: '1'}\n"

func TestWhatIsNotOpened(t *testing.T) {
	ref := func(ref string) string {
		return head + "paths: {/a: {post: {requestBody: {content: {application/json: {schema: {$ref: '" + ref + "'}}}}, responses: {'200': {description: ok}}}}}\n"
	}
	outside := filepath.Join(t.TempDir(), "outside.yaml")
	if err := os.WriteFile(outside, []byte("A: {type: string}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const url = "http://127.0.0.1:1"
	for name, tc := range map[string]struct {
		cfg  Config
		want string
	}{
		"no document":       {Config{}, "no OpenAPI document"},
		"no such file":      {Config{Spec: "testdata/none.yaml"}, "none.yaml"},
		"a folder":          {Config{Spec: "testdata"}, "testdata"},
		"swagger":           {Config{Spec: writeSpec(t, "swagger: '2.0'\n"), BaseURL: url}, "no OpenAPI 3 document"},
		"the future":        {Config{Spec: writeSpec(t, "openapi: 4.0.0\ninfo: {title: t, version: '1'}\npaths: {}\n"), BaseURL: url}, "4.0.0 is not supported"},
		"no YAML":           {Config{Spec: writeSpec(t, "{"), BaseURL: url}, "spec.yaml"},
		"no servers":        {Config{Spec: writeSpec(t, head+"paths: {}\n")}, "no servers"},
		"a relative server": {Config{Spec: writeSpec(t, head+"servers: [{url: /v1}]\npaths: {}\n")}, "first server"},
		"a remote ref":      {Config{Spec: writeSpec(t, ref("https://example.com/a.yaml#/A")), BaseURL: url}, "is not followed"},
		"metadata":          {Config{Spec: writeSpec(t, ref("http://169.254.169.254/latest#/A")), BaseURL: url}, "is not followed"},
		"an absolute ref":   {Config{Spec: writeSpec(t, ref(outside+"#/A")), BaseURL: url}, "is not followed"},
		"a ref outside":     {Config{Spec: writeSpec(t, ref("../../../../../../../../etc/passwd#/A")), BaseURL: url}, "escapes"},
		"a file URL":        {Config{Spec: writeSpec(t, ref("file:///etc/passwd#/A")), BaseURL: url}, "is not followed"},
		"a dangling ref":    {Config{Spec: writeSpec(t, ref("#/components/schemas/A")), BaseURL: url}, "components"},
		"secrets for the document's server": {Config{Spec: "testdata/pets-3.0.yaml", Headers: map[string]string{"Authorization": "s3cret"}},
			"headers without an address"},
		"credentials in the address": {Config{Spec: "testdata/pets-3.0.yaml", BaseURL: "http://u:s3cret@h"}, "has credentials"},
		"a query in the address":     {Config{Spec: "testdata/pets-3.0.yaml", BaseURL: "http://h?key=s3cret"}, "has a query"},
		"another scheme":             {Config{Spec: "testdata/pets-3.0.yaml", BaseURL: "ftp://h"}, "no http"},
		"a header that breaks lines": {Config{Spec: "testdata/pets-3.0.yaml", BaseURL: url, Headers: map[string]string{"X-A": "s3cret\r\nB: c"}}, "a header cannot have"},
		"a header of the protocol":   {Config{Spec: "testdata/pets-3.0.yaml", BaseURL: url, Headers: map[string]string{"Host": "s3cret"}}, "set by writ itself"},
		"a bad range":                {Config{Spec: "testdata/pets-3.0.yaml", BaseURL: url, AllowPrivate: []string{"10.0.0.0/99"}}, "10.0.0.0/99"},
	} {
		_, err := Open(tc.cfg)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLongNamesAndHiddenHeaders(t *testing.T) {
	long := strings.Repeat("a", 100)
	spec := writeSpec(t, head+"paths:\n  /x: {get: {operationId: "+long+"1, responses: {'200': {description: ok}}}, put: {operationId: "+long+"2, responses: {'200': {description: ok}}}}\n"+
		"  /y: {get: {operationId: y, parameters: [{name: X-Api-Key, in: header, required: true, schema: {type: string}}], responses: {'200': {description: ok}}}}\n")
	tools, problems := specs(t, open(t, Config{Spec: spec, BaseURL: "http://127.0.0.1:1", Headers: map[string]string{"x-api-key": "k"}}))
	if len(tools) != 3 || len(problems) != 0 {
		t.Errorf("%d tools, %v", len(tools), problems)
	}
	for name := range tools {
		if len(name) > maxName {
			t.Errorf("%s is too long", name)
		}
	}
	accepts(t, tools["y"], `{}`, true)
	accepts(t, tools["y"], `{"X-Api-Key":"mine"}`, false)
}
