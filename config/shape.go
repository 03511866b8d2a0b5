package config

import (
	"slices"
	"time"

	"writ/trait"
)

// fileShape is a configuration file: every root either at top level or under config.
type fileShape struct {
	rootsShape
	Config rootsShape `key:"config" doc:"The same roots, one level down, as a bundle of applications has them."`
}

// rootsShape are the roots of a configuration.
type rootsShape struct {
	React    reactShape    `key:"react" doc:"How agents behave: models, limits, instructions."`
	Surfaces surfacesShape `key:"surfaces" doc:"What agents may use."`
	Models   modelsShape   `key:"models" doc:"Model providers and prices."`
	MCP      mcpShape      `key:"mcp" doc:"MCP servers."`
	Store    storeShape    `key:"store" doc:"Where the durable state is kept."`

	Server raw `key:"server" doc:"Not provided by this version."`

	Specifications dict[specificationShape] `key:"behavior_specifications" doc:"Authored admission: who may do what, and see what."`
	Contracts      dict[contractShape]      `key:"action_contracts" doc:"Authored admission: what an action acts on."`
	Boundaries     dict[boundaryShape]      `key:"observation_boundaries" doc:"Authored admission: what may be seen and said of an action."`
	Participants   dict[participantShape]   `key:"participants" doc:"Authored admission: who acts."`
	Runtimes       dict[runtimeShape]       `key:"runtimes" doc:"Authored admission: what drives participants, and what it claims."`
}

// storeShape says where the durable state is.
type storeShape struct {
	Path val[string] `key:"path" doc:"The SQLite file, relative to the configuration." default:"chosen by the command"`
}

// modelsShape are the providers and prices.
type modelsShape struct {
	Providers dict[providerShape] `key:"providers" doc:"Accounts at model providers, by a name of your choice."`
	Prices    dict[priceShape]    `key:"prices" doc:"Prices by PROVIDER/MODEL, for a million tokens."`
}

type providerShape struct {
	positioned
	Kind    val[string]        `key:"kind" enum:"anthropic,openai,openai_chat" doc:"The provider's protocol." default:"the entry's name, if it is a kind"`
	APIKey  val[Secret]        `key:"api_key" doc:"A reference to the key: ${VAR} or file:PATH." default:"the provider's usual variable"`
	BaseURL val[string]        `key:"base_url" pattern:"^https?://\\S+$" hint:"write an http:// or https:// address" doc:"Another address that speaks the same protocol."`
	Timeout val[time.Duration] `key:"timeout" min:"1ms" max:"1h" doc:"How long a request may be silent." default:"the runtime's"`
}

type priceShape struct {
	Input      val[float64] `key:"input" min:"0" doc:"Input tokens that no cache served." default:"0"`
	Output     val[float64] `key:"output" min:"0" doc:"Output tokens." default:"0"`
	CacheRead  val[float64] `key:"cache_read" min:"0" doc:"Tokens read from the cache." default:"0"`
	CacheWrite val[float64] `key:"cache_write" min:"0" doc:"Tokens written to the cache." default:"0"`
}

// mcpShape is the registry of MCP servers.
type mcpShape struct {
	Services dict[serviceShape] `key:"services" doc:"MCP servers by id; a connection names one as server_id."`
}

type serviceShape struct {
	positioned
	Command val[string]        `key:"command" verbatim:"true" doc:"The program to start; it speaks MCP on standard input and output."`
	Args    val[[]val[string]] `key:"args" verbatim:"true" doc:"Its arguments."`
	Env     dict[val[Secret]]  `key:"env" doc:"Environment variables of the program; ${VAR} and file:PATH are resolved when it starts."`
	Cwd     val[string]        `key:"cwd" doc:"Its working directory, relative to the configuration."`
	URL     val[string]        `key:"url" pattern:"^https?://\\S+$" hint:"write an http:// or https:// address" doc:"The address of a streamable HTTP server."`
	Headers dict[val[Secret]]  `key:"headers" doc:"HTTP headers; ${VAR} and file:PATH are resolved when a request is made."`
	Timeout val[time.Duration] `key:"timeout" min:"1ms" max:"24h" doc:"How long connecting may take." default:"the runtime's"`
}

// positioned remembers where a mapping starts. Malformed means that it is no mapping, which has been reported: there
// is nothing to check in it.
type positioned struct {
	Pos       Pos
	Malformed bool
}

func (p *positioned) setPos(pos Pos, malformed bool) { p.Pos, p.Malformed = pos, malformed }

// reactShape is the root react: the keys of a block, and blocks for single agents.
type reactShape struct {
	blockShape
	Agents dict[blockShape]
	Direct dict[blockShape] // blocks directly under react
}

func (r *reactShape) decode(d *decoder, n *node, f field) {
	r.setPos(n.pos, n.kind != kindMap)
	if n.kind == kindNull {
		return
	}
	if n.kind != kindMap {
		d.wrongType(n, f, "a mapping")
		return
	}
	own := *n
	own.entries = nil
	names := append(fieldNames(shapeFields(blockType)), "agents")
	for _, e := range n.entries {
		_, isKey := shapeFields(blockType)[e.key]
		switch {
		case isKey:
			own.entries = append(own.entries, e)
		case e.key == "agents":
			d.any(e.value, valueOf(&r.Agents), field{path: join(f.path, "agents")})
			for _, a := range r.Agents.Entries {
				if !slices.Contains(d.blocks, a.Key) {
					d.report.errorf(a.Pos, trait.DidYouMean(a.Key, d.blocks), "react.agents.%s: no agent %s is declared under surfaces.as_consumer.agents", a.Key, quote(a.Key))
				}
			}
		case slices.Contains(d.blocks, e.key) && (e.value.kind == kindMap || e.value.kind == kindNull):
			r.Direct.Entries = append(r.Direct.Entries, dictEntry[blockShape]{Key: e.key, Pos: e.pos})
			d.any(e.value, valueOf(&r.Direct.Entries[len(r.Direct.Entries)-1].Val), field{path: join(f.path, e.key)})
		case e.value.kind == kindMap:
			d.report.errorf(e.pos, trait.DidYouMean(e.key, append(names, d.blocks...)),
				"react.%s is neither a key of react nor a declared agent", e.key)
		default:
			d.unknownKey(e, f.path, append(names, d.blocks...))
		}
	}
	d.any(&own, valueOf(&r.blockShape), f)
}

func (r *reactShape) schema(g *generator, _ field) schema {
	s := g.object(blockType)
	s["properties"].(schema)["agents"] = schema{"type": []string{"object", "null"}, "additionalProperties": g.ref(blockType),
		"description": "Blocks for single agents, by agent id."}
	s["additionalProperties"] = g.ref(blockType)
	return s
}

// blockShape is one block of react: of an agent, of the defaults, or the root itself.
type blockShape struct {
	positioned
	Dialect              val[string]           `key:"dialect" enum:"channel,native" default:"channel" doc:"How the model says its actions: channel blocks in its text, or the provider's own tool calls."`
	Model                val[string]           `key:"model" pattern:"^(recorded:\\S.*|[^/\\s]+/\\S+)$" hint:"write PROVIDER/MODEL or recorded:FILE" doc:"The model: PROVIDER/MODEL, or recorded:FILE to replay a transcript."`
	RoleModels           *dict[roleModelShape] `key:"role_models" doc:"Models of single roles."`
	SupportedModels      val[[]supportedShape] `key:"supported_models" doc:"The menu a user may pick a model from." default:"no menu"`
	FallbackModels       val[[]roleModelShape] `key:"fallback_models" doc:"Models that answer, in this order, when the one before has failed its retries." default:"none"`
	MaxRetries           val[int]              `key:"max_retries" min:"0" max:"100" default:"4" doc:"Retries of failed model calls in one turn."`
	MaxRounds            val[int]              `key:"max_rounds" min:"1" max:"1000" default:"15" doc:"Rounds in one turn."`
	MaxIterations        val[int]              `key:"max_iterations" min:"1" max:"1000" doc:"Another name of max_rounds."`
	MaxRepairs           val[int]              `key:"max_repairs" min:"0" max:"20" default:"2" doc:"Repeated decisions in one round."`
	MaxActionsPerRound   val[int]              `key:"max_actions_per_round" min:"1" max:"64" default:"8" doc:"Actions in one round; 1 switches multi-action and early execution off."`
	MaxConcurrentActions val[int]              `key:"max_concurrent_actions" min:"1" max:"64" default:"4" doc:"Exploring actions that run at the same time."`
	OnRefusal            val[string]           `key:"on_refusal" enum:"stop,continue" default:"stop" doc:"What the first refused action does to the model's stream."`
	StopOnFailure        val[bool]             `key:"stop_on_failure" default:"false" doc:"Withhold the later exploiting actions of a round once one failed."`
	Approver             val[string]           `key:"approver" enum:"owner,operator" default:"owner" doc:"Who decides on calls that need an approval: the conversation's owner, or an operator."`
	ApprovalTime         val[time.Duration]    `key:"approval_time" min:"1s" max:"720h" default:"24h" doc:"How long a decision is waited for; then the call is withheld."`
	Autonomous           *scheduleShape        `key:"autonomous" doc:"When the agent acts by itself; writ serve runs it."`
	OnUnknown            val[string]           `key:"on_unknown" enum:"quarantine,continue,stop" default:"quarantine" doc:"What an unknown outcome does to further actions on its target."`
	StartWithin          val[time.Duration]    `key:"start_within" min:"1ms" max:"1m" default:"10s" doc:"How long after its grant an action may start."`
	ToolTimeout          val[time.Duration]    `key:"tool_timeout" min:"1ms" max:"24h" default:"60s" doc:"How long a tool call may take."`
	MaxResultChars       val[int]              `key:"max_result_chars" min:"1" max:"1000000" default:"12000" doc:"Longer results go to the workspace, with a preview."`
	ContextTokens        val[int]              `key:"context_tokens" min:"4000" max:"10000000" default:"80000" doc:"A larger prompt is compacted at the next round's beginning."`
	Instructions         val[string]           `key:"additional_instructions" verbatim:"true" doc:"Text added to the system prompt as it stands."`
	Profile              val[string]           `key:"profile" doc:"The name of an instruction profile."`
	EventPipeline        *pipelineShape        `key:"event_source_pipeline" doc:"Whether events fold into the running turn."`
	Subagents            *subagentsValue       `key:"subagents" doc:"Delegation to helpers; not provided by this version."`
	Cache                *cacheShape           `key:"cache" doc:"What a change of the selection may cost; not provided by this version."`
	Skills               *raw                  `key:"skills" doc:"Skills; not provided by this version."`
	Roles                val[[]val[string]]    `key:"roles" doc:"Roles a user needs; not provided by this version, so the agent does not run."`
	Budgets              *raw                  `key:"budgets" doc:"Budgets; not provided by this version."`
}

type roleModelShape struct {
	positioned
	Provider val[string] `key:"provider" doc:"A provider under models.providers, or a kind of provider." default:"anthropic"`
	Model    val[string] `key:"model" doc:"The provider's name of the model."`
}

type supportedShape struct {
	roleModelShape
	Label val[string] `key:"label" verbatim:"true" doc:"What the menu shows." default:"the model's name"`
}

type pipelineShape struct {
	Enabled val[bool] `key:"enabled" default:"true" doc:"Off: events wait for the next turn."`
}

// cacheShape is the cache policy.
type cacheShape struct {
	SelectionChange cacheValue `key:"selection_change_policy" doc:"A policy for both classes of change, or a mapping."`
}
