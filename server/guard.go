package server

import (
	"encoding/json"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Handler is the door: every request passes the checks that need no token. A page of another site must not be able to
// reach a server on this machine through the person's browser, so the Host has to be an own one, an Origin too, and
// what changes something has to say that it is JSON.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store") // answers carry tokens
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if f := s.guard(r); f != nil {
			write(w, f)
			return
		}
		if _, pattern := s.mux.Handler(r); pattern == "" {
			s.lost(w, r)
			return
		}
		s.mux.ServeHTTP(w, r)
	})
}

func (s *Server) guard(r *http.Request) *Fault {
	if !s.host(r.Host) {
		return fault(FaultForbidden, "use the address that the server printed, or start it with --host NAME", "the request's Host is not one of this server's")
	}
	if o := r.Header.Values("Origin"); len(o) > 1 || len(o) == 1 && o[0] != "http://"+r.Host && o[0] != "https://"+r.Host {
		return fault(FaultForbidden, "", "the request comes from a page of another origin")
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	ct, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := strings.ToLower(params["charset"])
	if err != nil || ct != "application/json" || charset != "" && charset != "utf-8" {
		return fault(FaultMedia, "send Content-Type: application/json, also without a body", "what changes something is sent as JSON")
	}
	return nil
}

// host reports whether the Host header names this server. An address needs no look-up, so no other name can be made to
// point to it; on loopback it has to be a loopback one.
func (s *Server) host(host string) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	} else if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return false
	}
	if a, err := netip.ParseAddr(name); err == nil {
		return !s.cfg.Loopback || a.Unmap().IsLoopback()
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return name == "localhost" || slices.ContainsFunc(s.cfg.Hosts, func(h string) bool { return strings.EqualFold(h, name) })
}

// lost answers what no route is for.
func (s *Server) lost(w http.ResponseWriter, r *http.Request) {
	probe := &discard{header: http.Header{}}
	s.mux.ServeHTTP(probe, r)
	if probe.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", probe.header.Get("Allow"))
		write(w, fault(FaultMethod, "", "the path has no %s; it has %s", shorten(r.Method), probe.header.Get("Allow")))
		return
	}
	write(w, fault(FaultNotFound, "GET /openapi.json describes what there is", "there is nothing at this path"))
}

func write(w http.ResponseWriter, f *Fault) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.status)
	_ = json.NewEncoder(w).Encode(f)
}

// discard keeps what the standard mux answers to a request that it has no route for.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }
