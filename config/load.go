package config

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"writ/trait"
)

// Load reads a configuration file, or a directory whose *.yaml and *.yml files are read in the order of their names
// and merged: mappings are joined, anything else that two files set is an error. Relative files are relative to the
// file's directory. The Config is nil when the report has errors.
func Load(path string) (*Config, *Report) {
	report := &Report{}
	files, dir := configFiles(path, report)
	var trees []*node
	for _, file := range files {
		if data, ok := readFile(file, report); ok {
			if tree := parseTree(file, data, report); tree != nil {
				trees = append(trees, hoist(tree, report))
			}
		}
	}
	if len(trees) == 0 {
		report.sort()
		return nil, report
	}
	tree := trees[0]
	for _, next := range trees[1:] {
		tree = mergeTrees(tree, next, "", report)
	}
	return assemble(tree, dir, report)
}

// Parse reads one configuration from memory. name is what positions show; relative files are relative to dir. The
// Config is nil when the report has errors.
func Parse(name string, data []byte, dir string) (*Config, *Report) {
	report := &Report{}
	tree := parseTree(name, data, report)
	if tree == nil {
		report.sort()
		return nil, report
	}
	return assemble(hoist(tree, report), dir, report)
}

// configFiles lists the files of a configuration, sorted, and the directory that their references start from.
func configFiles(path string, report *Report) (files []string, dir string) {
	info, err := os.Stat(path)
	if err != nil {
		report.errorf(Pos{File: path}, "", "%s", readProblem(err))
		return nil, ""
	}
	if !info.IsDir() {
		return []string{path}, filepath.Dir(path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		report.errorf(Pos{File: path}, "", "%s", readProblem(err))
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); (ext == ".yaml" || ext == ".yml") && !strings.HasPrefix(e.Name(), ".") {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	slices.Sort(files)
	if len(files) == 0 && report.OK() {
		report.errorf(Pos{File: path}, "", "the directory has no *.yaml or *.yml file")
	}
	return files, path
}

// readFile reads a regular file, a little more than the limit at most.
func readFile(path string, report *Report) ([]byte, bool) {
	fail := func(err error) ([]byte, bool) {
		report.errorf(Pos{File: path}, "", "%s", readProblem(err))
		return nil, false
	}
	info, err := os.Stat(path)
	if err != nil {
		return fail(err)
	}
	if !info.Mode().IsRegular() {
		return fail(errors.New("not a regular file"))
	}
	f, err := os.Open(path)
	if err != nil {
		return fail(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return fail(err)
	}
	return data, true
}

// readProblem is the cause of a file error without the path, which the position shows.
func readProblem(err error) string {
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "no such file"
	}
	return "cannot read: " + err.Error()
}

// hoist lifts the roots under config: to the top level.
func hoist(tree *node, report *Report) *node {
	below, ok := tree.get("config")
	if !ok {
		return tree
	}
	if below.value.kind != kindMap && below.value.kind != kindNull {
		report.errorf(below.value.pos, "put react: and surfaces: under it", "config is %s, not a mapping", below.value.describe())
	}
	out := *tree
	out.entries = nil
	for _, e := range tree.entries {
		if e.key != "config" {
			out.entries = append(out.entries, e)
		}
	}
	for _, e := range below.value.entries {
		if top, both := tree.get(e.key); both && e.key != "config" {
			report.errorf(e.pos, "keep one of them", "%s is both at top level (line %d) and under config", e.key, top.pos.Line)
			continue
		}
		out.entries = append(out.entries, e)
	}
	return &out
}

// assemble decodes, checks and resolves a merged tree.
func assemble(tree *node, dir string, report *Report) (*Config, *Report) {
	defer report.sort()
	var roots rootsShape
	d := &decoder{report: report, dir: dir, blocks: blockNames(tree)}
	d.object(tree, reflect.ValueOf(&roots).Elem(), field{})
	if e, ok := tree.get("server"); ok {
		report.warnf(e.pos, "", "server is not provided by this version yet")
	}
	c := &checker{report: report, name: tree.pos.File, dir: dir, roots: &roots, tree: tree}
	cfg := c.config()
	if !report.OK() {
		return nil, report
	}
	return cfg, report
}

// blockNames are the names a block under react may have: declared agents, their safe forms, and the two defaults.
func blockNames(tree *node) []string {
	names := []string{"default_agent", "default"}
	surfaces, _ := tree.get("surfaces")
	consumer, _ := surfaces.value.get("as_consumer")
	agents, _ := consumer.value.get("agents")
	if agents.value != nil {
		for _, e := range agents.value.entries {
			names = append(names, e.key, safeID(e.key))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// safeID is the safe form of an agent id: runs of other characters than letters and digits are one "_", none at the
// ends ("my.agent-1" is "my_agent_1").
func safeID(id string) string {
	var b strings.Builder
	for _, r := range id {
		switch {
		case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "_"):
			b.WriteByte('_')
		}
	}
	return strings.TrimRight(b.String(), "_")
}

// CheckAllowed compares the callables that a connection names (in allowed, tool_traits, limits and so on) with those
// that its live source lists, and returns a warning for each that is not there.
func CheckAllowed(conn *Connection, listed []string) []Problem {
	var out []Problem
	for name, pos := range conn.names {
		if !slices.Contains(listed, name) {
			out = append(out, problemAt(pos, trait.DidYouMean(name, listed), "%s does not list the tool %s", conn.Alias, quote(name)))
		}
	}
	r := &Report{Warnings: out}
	r.sort()
	return r.Warnings
}
