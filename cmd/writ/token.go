package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"writ/server"
	"writ/store"
	"writ/store/sqlite"
)

type tokenFlags struct {
	data, participant, name, expires string
	json                             bool
}

func (a *app) tokenCommand() *cobra.Command {
	var f tokenFlags
	cmd := &cobra.Command{
		Use:   "token create --participant NAME | list | revoke ID",
		Short: "Make, list and revoke API tokens",
		Long: `API tokens open invocations over HTTP (writ serve). A token is for one participant, or for all with "*",
and acts on behalf of who made it. Its text is printed once, on standard output; only a hash of it is
stored. Revoked, it ends at once, also while a server runs; invocations that it has opened go on.`,
		Example: `  writ token create --participant shopper --name ci --expires 90d
  writ token list
  writ token revoke tok_ABC…`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(_ *cobra.Command, args []string) error { return a.token(&f, args) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.data, "data", "", "data directory (default: $WRIT_DATA, else .writ)")
	fl.StringVar(&f.participant, "participant", "", "the participant that it is for, or *")
	fl.StringVar(&f.name, "name", "", "what to call it")
	fl.StringVar(&f.expires, "expires", "", "how long it is good for, such as 90d or 12h (default: until it is revoked)")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	_ = cmd.MarkFlagDirname("data")
	return cmd
}

// tokenRow is a token as the CLI prints it.
type tokenRow struct {
	ID          string     `json:"id"`
	Participant string     `json:"participant"`
	Name        string     `json:"name,omitempty"`
	Owner       string     `json:"owner"`
	CreatedAt   time.Time  `json:"created_at"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
	RevokedAt   *time.Time `json:"revoked_at,omitempty"`
	Token       string     `json:"token,omitempty"`
}

func toTokenRow(t store.Token) tokenRow {
	at := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	return tokenRow{ID: t.ID, Participant: t.Subject, Name: t.Name, Owner: t.Owner, CreatedAt: t.Created, ExpiresAt: at(t.Expires), RevokedAt: at(t.Revoked)}
}

func (a *app) token(f *tokenFlags, args []string) error {
	switch verb := args[0]; {
	case verb == "create" && len(args) == 1:
		return a.createToken(f)
	case verb == "list" && len(args) == 1:
		return a.listTokens(f)
	case verb == "revoke" && len(args) == 2:
		return a.revokeToken(f, args[1])
	case verb == "revoke":
		return usage("writ token revoke needs the id of a token")
	}
	return usage("writ token %s: there is create, list, and revoke ID", strings.Join(args, " "))
}

// tokenDesk opens the data directory, or the way through the process that holds it.
func (a *app) tokenDesk(dir string) (server.Desk, func() error, error) {
	e, err := a.openOrMake(dir)
	if err != nil {
		return server.Desk{}, nil, err
	}
	return server.Desk{Store: e.store, Tenant: "local", Owner: localOwner(), Now: time.Now}, e.close, nil
}

// openOrMake is operate, and makes the directory when there is none: a token can be the first thing in it.
func (a *app) openOrMake(dir string) (*engine, error) {
	if _, err := os.Stat(filepath.Join(dir, sqlite.File)); err != nil && !sqlite.Held(dir) {
		return a.open(a.ctx, dir, logger(a.err, false))
	}
	e, _, err := a.operate(dir)
	return e, err
}

func (a *app) createToken(f *tokenFlags) (err error) {
	if f.participant == "" {
		return usage("--participant NAME is required: whom the token is for, or * for all")
	}
	life, err := lifetime(f.expires)
	if err != nil {
		return usage("--expires %s: write 90d, or 12h", f.expires)
	}
	desk, done, err := a.tokenDesk(dataDir(f.data))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	t, text, err := desk.Create(a.ctx, server.TokenRequest{Participant: f.participant, Name: f.name, Life: life})
	if err != nil {
		return refused("", err)
	}
	if f.json {
		row := toTokenRow(t)
		row.Token = text
		return a.printJSON(row)
	}
	until := "until it is revoked"
	if !t.Expires.IsZero() {
		until = "until " + t.Expires.UTC().Format(time.RFC3339)
	}
	fmt.Fprintf(a.err, "writ: %s is for participant %s, %s; this is shown once\n", t.ID, printable(t.Subject), until)
	fmt.Fprintln(a.out, text)
	return nil
}

// lifetime reads a duration that may be in days; empty is 0.
func lifetime(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, derr := strconv.Atoi(days)
		if d, err = time.Duration(n)*24*time.Hour, derr; n > 36500 {
			err = errors.New("more than a hundred years")
		}
	}
	if err == nil && d <= 0 {
		err = errors.New("it must be a time to come")
	}
	return d, err
}

func (a *app) listTokens(f *tokenFlags) error {
	st, err := sqlite.OpenReadOnly(a.ctx, dataDir(f.data))
	if err != nil {
		return refused("--data names the data directory of the runs", err)
	}
	defer st.Close()
	all, err := server.Desk{Store: st}.List(a.ctx)
	if err != nil {
		return refused("", err)
	}
	if f.json {
		rows := make([]tokenRow, len(all))
		for i, t := range all {
			rows[i] = toTokenRow(t)
		}
		return a.printJSON(rows)
	}
	w := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tPARTICIPANT\tNAME\tCREATED\tSTATE")
	for _, t := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", t.ID, printable(t.Subject), printable(t.Name), t.Created.UTC().Format(time.RFC3339), tokenState(t))
	}
	return w.Flush()
}

func tokenState(t store.Token) string {
	switch {
	case !t.Revoked.IsZero():
		return "revoked"
	case t.Expires.IsZero():
		return "good"
	case !server.Usable(t, time.Now()):
		return "expired"
	}
	return "good until " + t.Expires.UTC().Format(time.RFC3339)
}

func (a *app) revokeToken(f *tokenFlags, id string) (err error) {
	desk, done, err := a.tokenDesk(dataDir(f.data))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	t, err := desk.Revoke(a.ctx, id)
	if errors.Is(err, server.ErrTokenUnknown) {
		return refused("writ token list has their ids", fmt.Errorf("there is no token %s", id))
	}
	if err != nil {
		return refused("", err)
	}
	if f.json {
		return a.printJSON(toTokenRow(t))
	}
	fmt.Fprintf(a.out, "%s is revoked\n", t.ID)
	return nil
}
