package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"writ"
)

const (
	tagPort  = "Admission port"
	tagRead  = "Reading"
	tagState = "State of the server"
)

// routed is the standard mux, and knows what it has been given.
type routed struct {
	*http.ServeMux
	patterns []string
}

// HandleFunc implements humago.Mux.
func (m *routed) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	m.patterns = append(m.patterns, pattern)
	m.ServeMux.HandleFunc(pattern, handler)
}

// routes registers every operation; the OpenAPI document is made of the same table.
func (s *Server) routes() error {
	s.mux = &routed{ServeMux: http.NewServeMux()}
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	version := s.cfg.Version
	if version == "" {
		version = "0"
	}
	s.api = humago.New(s.mux, huma.Config{OpenAPI: &huma.OpenAPI{OpenAPI: "3.1.0", Info: &huma.Info{Title: "Writ", Version: version,
		Description: "The admission port over HTTP: a harness has each tool action admitted before it has any effect."},
		Components: &huma.Components{Schemas: registry, SecuritySchemes: map[string]*huma.SecurityScheme{
			"token": {Type: "http", Scheme: "bearer", Description: "an API token, or the token of an invocation"}}}},
		Formats: formats(), DefaultFormat: "application/json", RejectUnknownQueryParameters: true})

	const inv = "/v1/invocations/{id}"
	add(s, "open", "POST", "/v1/participants/{participant}/invocations", tagPort, "Open an invocation", s.open)
	add(s, "admit", "POST", inv+"/admit", tagPort, "Ask for one tool action", s.admit)
	add(s, "dispatch", "POST", inv+"/dispatch", tagPort, "Get the one permission to start its effect", s.dispatch)
	add(s, "complete", "POST", inv+"/complete", tagPort, "Say what became of it", s.complete)
	add(s, "report_unknown", "POST", inv+"/report_unknown", tagPort, "Say that it may have happened", s.reportUnknown)
	add(s, "cancel", "POST", inv+"/cancel", tagPort, "Withhold it, before dispatch", s.cancel)
	add(s, "renew", "POST", inv+"/renew", tagPort, "Move the end of the lease", s.renew)
	add(s, "close", "POST", inv+"/close", tagPort, "End the invocation", s.close)
	add(s, "invocation", "GET", inv, tagRead, "Read an invocation with its actions", s.invocation)
	add(s, "operation", "GET", "/v1/operations/{id}", tagRead, "Read one operation", s.operation)
	add(s, "operations", "GET", "/v1/operations", tagRead, "List tool actions", s.operations)
	add(s, "participants", "GET", "/v1/participants", tagRead, "List participants as they were compiled", s.participants)
	add(s, "healthz", "GET", "/healthz", tagState, "Whether the process answers", s.healthz)
	add(s, "readyz", "GET", "/readyz", tagState, "Whether it can work, and what waits for a person", s.readyz)
	add(s, "openapi", "GET", "/openapi.json", tagState, "This document", s.document)
	paths := s.api.OpenAPI().Paths
	paths["/openapi.json"].Get.Responses["200"].Content = map[string]*huma.MediaType{"application/json": {Schema: &huma.Schema{Type: "object"}}}
	ready := paths["/readyz"].Get.Responses
	ready["503"] = &huma.Response{Description: http.StatusText(http.StatusServiceUnavailable), Content: ready["200"].Content}
	return s.describe()
}

// bodyTime bounds how long a body may take to come.
const bodyTime = 10 * time.Second

func add[I, O any](s *Server, id, method, path, tag, summary string, do func(context.Context, *I) (*O, error)) {
	op := huma.Operation{OperationID: id, Method: method, Path: path, Summary: summary, Tags: []string{tag}, DefaultStatus: http.StatusOK,
		MaxBodyBytes: maxBody + 1, BodyReadTimeout: bodyTime,
		SkipValidateBody: true} // the body is read strictly; what a request then says wrong is for the port to answer
	if tag != tagState {
		op.Security = []map[string][]string{{"token": {}}}
	}
	huma.Register(s.api, op, do)
}

// describe finishes the document: the closed sets stand in it.
func (s *Server) describe() error {
	var codes, faults []any
	for _, c := range writ.Codes() {
		codes = append(codes, string(c))
	}
	for _, f := range Faults() {
		faults = append(faults, f.Code)
	}
	schemas := s.api.OpenAPI().Components.Schemas.Map()
	for _, at := range []struct {
		schema, field string
		values        []any
	}{{"Decision", "refusal", codes}, {"Receipt", "code", codes}, {"Grant", "code", codes}, {"Completed", "code", codes}, {"Renewed", "code", codes}, {"Fault", "code", faults}} {
		if schema := schemas[at.schema]; schema != nil && schema.Properties[at.field] != nil {
			schema.Properties[at.field].Enum = at.values
		} else {
			return fmt.Errorf("server: the document has no %s.%s", at.schema, at.field)
		}
	}
	var err error
	s.openapi, err = json.Marshal(s.api.OpenAPI())
	return err
}

type documentOutput struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

func (s *Server) document(context.Context, *nothing) (*documentOutput, error) {
	return &documentOutput{"application/json", s.openapi}, nil
}
