package config

import "time"

// surfacesShape is the root surfaces.
type surfacesShape struct {
	AsConsumer consumerShape `key:"as_consumer" doc:"What agents consume."`
}

type consumerShape struct {
	DefaultAgent val[string]      `key:"default_agent" doc:"The agent used when none is asked for."`
	Agents       dict[agentShape] `key:"agents" doc:"The agents. An agent exists if it is here."`
}

// agentShape is the inventory of one agent.
type agentShape struct {
	positioned
	Tools        val[[]connShape]   `key:"tools" doc:"The tool connections: the ceiling of what the agent may call." default:"none"`
	Skills       *raw               `key:"skills" doc:"Skills; not provided by this version."`
	EventSources []eventSourceShape `key:"event_sources" doc:"Sources of events; not provided by this version."`
	Roles        val[[]val[string]] `key:"roles" doc:"Roles a user needs; not provided by this version, so the agent does not run."`
}

// connShape is one tool connection.
type connShape struct {
	positioned
	Kind     val[string] `key:"kind" enum:"python,mcp,http,named_service,go" doc:"Where the tools live."`
	ID       val[string] `key:"id" doc:"A name for the connection; for kind go, the name of the registration." default:"alias"`
	Alias    val[string] `key:"alias" pattern:"^[A-Za-z0-9_-]+$" hint:"use letters, digits, dashes and underscores" doc:"The first part of the tool ids: ALIAS.NAME." default:"id, server_id, or the file's base name"`
	Ref      val[string] `key:"ref" doc:"python: the file, relative to the configuration."`
	Module   val[string] `key:"module" doc:"python: an importable module; not provided by this version."`
	ServerID val[string] `key:"server_id" doc:"mcp: the server, an entry of mcp.services."`
	URL      val[string] `key:"url" pattern:"^https?://\\S+$" hint:"write an http:// or https:// address" doc:"http: the service's base address." default:"the document's first server"`
	Spec     val[string] `key:"spec" doc:"http: its OpenAPI 3.0 or 3.1 document, a file, relative to the configuration."`

	Headers      dict[val[Secret]]  `key:"headers" doc:"http: headers of every request; ${VAR} and file:PATH are resolved when the connection opens."`
	AllowPrivate val[[]val[string]] `key:"allow_private" doc:"http: addresses, CIDR ranges and hosts that may be private although the configuration does not name them as url."`

	Allowed    val[[]val[string]]    `key:"allowed" doc:"The callables the agent may call; ['*'] is everything, [] is nothing." default:"python and go: everything, with a warning"`
	ToolTraits dict[traitShape]      `key:"tool_traits" doc:"Traits by unqualified callable name; '*' stands for every callable."`
	Namespaces *dict[namespaceShape] `key:"namespaces" doc:"named_service: the namespaces."`

	TrustTraits      val[bool] `key:"trust_traits" default:"false" doc:"mcp: let the server declare its tools' traits."`
	TrustAnnotations val[bool] `key:"trust_annotations" default:"false" doc:"mcp: let readOnlyHint decide between exploration and exploitation."`

	Env         dict[val[Secret]]        `key:"env" doc:"python: environment variables of the worker."`
	Paths       dict[pathsShape]         `key:"paths" doc:"By tool, the arguments that name what it reads and writes."`
	Targets     dict[val[[]val[string]]] `key:"targets" verbatim:"true" doc:"By tool, templates over its arguments that name what it acts on." default:"the tool itself"`
	Limits      dict[limitShape]         `key:"limits" doc:"Limits by tool; '*' stands for every tool."`
	Approval    dict[val[string]]        `key:"approval" enum:"never,exploitation,always" doc:"By tool, when a person must approve a call before it runs; exploitation is every call that does not purely explore or stay neutral." default:"never"`
	Claims      dict[raw]                `key:"claims" doc:"By tool, claims of connected accounts; not provided by this version."`
	Roles       *rolesValue              `key:"roles" doc:"Roles a user needs, for all tools or by tool; not provided by this version."`
	Interpreter val[string]              `key:"interpreter" default:"python3" doc:"python: the interpreter's command."`
	Timeout     val[time.Duration]       `key:"timeout" min:"1ms" max:"24h" doc:"How long a call of this connection may take." default:"the agent's tool_timeout"`
}

// traitShape is what the configuration says of one callable.
type traitShape struct {
	positioned
	Strategy  val[strategyValue]  `key:"strategy" doc:"What the tool does to the agent's knowledge or to the world: one value or a list." default:"what the tool declares, else unknown"`
	Execution val[executionValue] `key:"execution" doc:"When a complete call may start." default:"what the tool declares, else after the generation"`
	Effect    val[effectValue]    `key:"effect" doc:"What may be repeated." default:"once"`
}

type namespaceShape struct {
	positioned
	Allowed    val[[]val[string]] `key:"allowed" doc:"Operation ids; ['*'] is everything the provider declares."`
	ToolTraits dict[traitShape]   `key:"tool_traits" doc:"Traits by callable name; they replace the connection's for this namespace."`
}

type pathsShape struct {
	Reads  val[[]val[string]] `key:"reads" doc:"Arguments whose values are read."`
	Writes val[[]val[string]] `key:"writes" doc:"Arguments whose values are written."`
}

type limitShape struct {
	positioned
	Timeout     val[time.Duration] `key:"timeout" min:"1ms" max:"24h" doc:"How long a call may take." default:"the connection's timeout"`
	Concurrency val[int]           `key:"concurrency" min:"1" max:"1000" doc:"Calls at the same time." default:"no limit of its own"`
	Retries     val[int]           `key:"retries" min:"0" max:"10" default:"0" doc:"Repeats after a failure; only with effect none or idempotent."`
}

// eventSourceShape is one source of events.
type eventSourceShape struct {
	positioned
	Kind      val[string]    `key:"kind" enum:"named_service,webhook,cron,mcp" doc:"What sends the events."`
	Namespace val[string]    `key:"namespace" doc:"named_service: the namespace."`
	Name      val[string]    `key:"name" doc:"The source's name, for the other kinds."`
	Discovery discoveryShape `key:"discovery" doc:"How the owner is found."`
	Policies  policiesShape  `key:"policies" doc:"How events become blocks and their content is pulled."`
}

type policiesShape struct {
	BlockProduction *policyShape `key:"block_production" doc:"Who turns an event into blocks."`
	Pull            *policyShape `key:"pull" doc:"Who answers for the event's content."`
}

type policyShape struct {
	Mode      val[string] `key:"mode" enum:"provider,default,none" default:"default" doc:"provider, default or none."`
	Operation val[string] `key:"operation" doc:"The owner's operation; it grants the agent nothing."`
}
