package workspace

import (
	"encoding/json"

	"writ"
)

// Spec is one built-in tool in the form of the traits article's TOOL_SPEC.
type Spec struct {
	ID         string          `json:"id"`
	Traits     SpecTraits      `json:"tool_traits"`
	Purpose    string          `json:"purpose"`
	Parameters json.RawMessage `json:"parameters"`

	paths writ.ToolPaths
}

// SpecTraits are the traits of a [Spec].
type SpecTraits struct {
	Strategy  []string        `json:"strategy"`
	Execution *writ.Execution `json:"execution,omitempty"`
}

// Specs is the static table of the built-in file tools.
func Specs() []Spec {
	return []Spec{
		{ID: Alias + ".read", Traits: SpecTraits{Strategy: []string{"exploration"}}, Purpose: purposeRead,
			Parameters: json.RawMessage(paramsRead), paths: writ.ToolPaths{Reads: []string{"paths"}}},
		{ID: Alias + ".write", Traits: SpecTraits{Strategy: []string{"exploitation"}}, Purpose: purposeWrite,
			Parameters: json.RawMessage(paramsWrite), paths: writ.ToolPaths{Writes: []string{"path"}}},
		{ID: Alias + ".patch", Traits: SpecTraits{Strategy: []string{"exploitation"}}, Purpose: purposePatch,
			Parameters: json.RawMessage(paramsPatch), paths: writ.ToolPaths{Writes: []string{"path"}}},
		{ID: Alias + ".rg", Traits: SpecTraits{Strategy: []string{"exploration"}}, Purpose: purposeRg,
			Parameters: json.RawMessage(paramsRg), paths: writ.ToolPaths{Reads: []string{"root"}}},
	}
}

func (s Spec) tool() writ.ToolSpec {
	var set writ.Strategy
	for _, n := range s.Traits.Strategy {
		v, _ := writ.ParseStrategy(n)
		set |= v
	}
	return writ.ToolSpec{
		Name: s.ID[len(Alias)+1:], Description: s.Purpose, Schema: s.Parameters,
		Declared: &writ.DeclaredTraits{Strategy: &set, Execution: s.Traits.Execution},
		Paths:    s.paths, Local: true,
	}
}

const purposeRead = `Reads files of the workspace. Give paths, or items with a range of lines. Each path answers by itself: a ` +
	`missing one is a status, not a failure. Text is cut at 48,000 characters a path and says so; images are shown; of ` +
	`other binary files only size and type.`

const paramsRead = `{"type":"object","additionalProperties":false,"properties":{
"paths":{"type":"array","maxItems":50,"items":{"type":"string","minLength":1},"description":"paths or conv:fi: refs, read whole"},
"items":{"type":"array","maxItems":50,"description":"paths with a range of lines","items":{"type":"object","additionalProperties":false,"required":["path"],"properties":{
"path":{"type":"string","minLength":1},
"line_start":{"type":"integer","minimum":1,"description":"first line, from 1"},
"line_count":{"type":"integer","minimum":1}}}},
"line_numbers":{"type":"boolean","default":false,"description":"puts the number and a tab before each line"},
"max_chars":{"type":"integer","minimum":1,"maximum":48000,"default":48000,"description":"per path"},
"stats_only":{"type":"boolean","default":false,"description":"sizes and types only"}}}`

const purposeWrite = `Writes a text file of the workspace, whole: it is created or replaced, never half written. Missing folders are ` +
	`created. Answers its ref, size and digest.`

const paramsWrite = `{"type":"object","additionalProperties":false,"required":["path","content"],"properties":{
"path":{"type":"string","minLength":1,"description":"a path or conv:fi: ref under files/"},
"content":{"type":"string"},
"channel":{"type":"string","enum":["canvas","timeline_text","internal"],"default":"internal","description":"where the user sees it"},
"kind":{"type":"string","enum":["display","file"],"default":"file"}}}`

const purposePatch = `Changes a text file of the workspace by a unified diff (hunks that begin with @@). Context and removed lines must ` +
	`match the file exactly; line numbers and counts need not, as long as the place is unique. A text that is no diff ` +
	`replaces the file. When a hunk does not match, nothing is written and the answer says what to read.`

const paramsPatch = `{"type":"object","additionalProperties":false,"required":["path","patch"],"properties":{
"path":{"type":"string","minLength":1,"description":"a path or conv:fi: ref under files/"},
"patch":{"type":"string","minLength":1,"description":"a unified diff of this one file, or its whole new text"},
"channel":{"type":"string","enum":["canvas","timeline_text","internal"],"default":"internal"},
"kind":{"type":"string","enum":["display","file"],"default":"file"}}}`

const purposeRg = `Searches the text files of the workspace line by line with a regular expression (RE2). Without a pattern it lists the ` +
	`files whose names match name_regex. Hits come with a range to hand to read. scan_truncated says that not all was searched.`

const paramsRg = `{"type":"object","additionalProperties":false,"properties":{
"pattern":{"type":"string","maxLength":1000,"description":"RE2, matched within one line"},
"root":{"type":"string","minLength":1,"description":"folder or file to search; all when left out"},
"name_regex":{"type":"string","maxLength":1000,"description":"RE2, matched against the path"},
"context_lines":{"type":"integer","minimum":0,"maximum":10,"default":0},
"max_matches":{"type":"integer","minimum":1,"maximum":1000,"default":200},
"max_files":{"type":"integer","minimum":1,"maximum":10000,"default":10000,"description":"files to search"}}}`
