package http

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// Bounds of a document with the files it refers to.
const (
	maxSpecBytes = 64 << 20
	maxSpecFiles = 1_000
)

// load reads a document and resolves its references. They may name files in the document's own folder and below, and
// nothing else: what a document says is not what the administrator says.
func load(file string) (*openapi3.T, error) {
	root, err := os.OpenRoot(filepath.Dir(file))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	left, files := int64(maxSpecBytes), 0
	loader := openapi3.NewLoader()
	loader.IsExternalRefsAllowed = true
	loader.ReadFromURIFunc = func(_ *openapi3.Loader, at *url.URL) ([]byte, error) {
		if at.Scheme != "" || at.Host != "" || at.Opaque != "" || strings.HasPrefix(at.Path, "/") {
			return nil, fmt.Errorf("$ref %.200q is not followed: only files in the document's own folder and below are read", at.String())
		}
		if files++; files > maxSpecFiles {
			return nil, fmt.Errorf("the document refers to more than %d files", maxSpecFiles)
		}
		data, err := readFile(root, at.Path, left)
		left -= int64(len(data))
		return data, err
	}
	doc, err := loader.LoadFromURI(&url.URL{Path: filepath.Base(file)})
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", filepath.Base(file), err)
	}
	switch v := doc.OpenAPI; {
	case strings.HasPrefix(v, "3.0"), strings.HasPrefix(v, "3.1"):
		return doc, nil
	case v == "":
		return nil, fmt.Errorf("reading %s: it is no OpenAPI 3 document: it has no openapi version", filepath.Base(file))
	}
	return nil, fmt.Errorf("reading %s: OpenAPI %.20s is not supported, only 3.0 and 3.1", filepath.Base(file), doc.OpenAPI)
}

func readFile(root *os.Root, name string, most int64) ([]byte, error) {
	f, err := root.Open(filepath.FromSlash(path.Clean(name)))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("the document and its files have more than %d bytes", maxSpecBytes)
	}
	return data, err
}

// base is where the service is.
type base struct {
	url     *url.URL // scheme, host and path without a slash at its end
	trusted bool     // the configuration says it, not the document
}

func baseOf(cfg *Config, doc *openapi3.T) (*base, error) {
	if cfg.BaseURL != "" {
		u, err := parseBase(cfg.BaseURL)
		return &base{u, true}, err
	}
	if len(cfg.Headers) > 0 {
		return nil, errors.New("headers without an address: they go to an address of the configuration only, never to one of the document (hint: set url)")
	}
	if len(doc.Servers) == 0 {
		return nil, errors.New("the document has no servers (hint: set url)")
	}
	u, err := serverURL(doc.Servers[0])
	if err != nil {
		return nil, fmt.Errorf("the document's first server: %w (hint: set url)", err)
	}
	return &base{u, false}, nil
}

// serverURL is a server of the document, its variables replaced by their defaults.
func serverURL(s *openapi3.Server) (*url.URL, error) {
	text := s.URL
	for name, v := range s.Variables {
		if v != nil {
			text = strings.ReplaceAll(text, "{"+name+"}", v.Default)
		}
	}
	return parseBase(text)
}

func parseBase(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("the address cannot be parsed") // the error would show all of it
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, fmt.Errorf("%.200q is no http:// or https:// address", u.Redacted())
	case u.User != nil:
		return nil, errors.New("the address has credentials in it (hint: put them into headers)")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("the address has a query or a fragment")
	}
	if p := u.EscapedPath(); p != "" {
		if u, err = u.Parse(strings.TrimRight(p, "/")); err != nil {
			return nil, errors.New("the address cannot be parsed")
		}
		if strings.Trim(p, "/") == "" {
			u.Path, u.RawPath = "", ""
		}
	}
	return u, nil
}

// origin is the part of an address that decides who gets what.
func origin(u *url.URL) string { return u.Scheme + "://" + u.Host }

// checkHeaders refuses headers that cannot be sent, without showing them, and returns the values that must not be seen.
func checkHeaders(headers map[string]string) (secrets [][]byte, err error) {
	for name, value := range headers {
		if !validToken(name) {
			return nil, fmt.Errorf("%.60q cannot be the name of a header", name)
		}
		if managed[strings.ToLower(name)] {
			return nil, fmt.Errorf("the header %s is set by writ itself", name)
		}
		if !validValue(value) {
			return nil, fmt.Errorf("the value of header %s has a character that a header cannot have", name)
		}
		if secretName(name) {
			secrets = append(secrets, secretParts(value)...)
		}
	}
	return secrets, nil
}

// managed are the headers that neither configuration nor call may set.
var managed = map[string]bool{
	"host": true, "content-length": true, "transfer-encoding": true, "connection": true, "te": true, "trailer": true,
	"upgrade": true, "keep-alive": true, "proxy-connection": true, "expect": true, "idempotency-key": true,
	"accept-encoding": true,
}

func validToken(s string) bool {
	for _, r := range s {
		if r >= 127 || r <= ' ' || strings.ContainsRune(`()<>@,;:\"/[]?={}`, r) {
			return false
		}
	}
	return s != ""
}

func validValue(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' && s[i] != '\t' || s[i] == 127 {
			return false
		}
	}
	return true
}

// secretName tells headers that carry credentials from those that say a version or a language.
func secretName(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{"auth", "cookie", "key", "token", "secret", "password", "session", "signature", "credential"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// secretParts are a credential and its parts without the scheme, as a service may repeat them. Short ones are left
// out: they would be found everywhere.
func secretParts(value string) [][]byte {
	const least = 6
	var out [][]byte
	if len(value) >= least {
		out = append(out, []byte(value))
	}
	if _, rest, ok := strings.Cut(value, " "); ok && len(rest) >= least {
		out = append(out, []byte(rest))
	}
	return out
}
