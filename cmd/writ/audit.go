package main

import (
	"bufio"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"writ/admission"
	"writ/store/sqlite"
)

func (a *app) auditCommand() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Verify and export the history of what was done",
		Long: `The history tells of every settled action of an ended turn, in three events each, chained by hashes (docs/history.md).
It holds references, codes and digests, no arguments and no results. It is read while another process holds the
data directory.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&data, "data", "", "data directory (default: $WRIT_DATA, else .writ)")
	cmd.AddCommand(a.auditVerify(&data), a.auditExport(&data))
	return cmd
}

func (a *app) auditVerify(data *string) *cobra.Command {
	var head string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify [--head HASH]",
		Short: "Check the history's chains, and that it agrees with the ledger",
		Long: `Read every history and recompute its chain of hashes, check the heads that chain the histories, and compare what they
say with the ledger's rows. With --head, also demand that the head of that hash, which you kept elsewhere, is still there:
then everything before it is as it was. Without a head kept elsewhere, who can write the file can rewrite all of it.

Exit codes: 0 nothing was found, 1 something was.`,
		Example: `  writ audit verify
  writ audit verify --head 5f0c…`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			st, err := sqlite.OpenReadOnly(a.ctx, dataDir(*data))
			if err != nil {
				return refused("--data names the data directory of the runs", err)
			}
			defer st.Close()
			v, err := admission.Verify(a.ctx, st, head)
			if err != nil {
				return refused("", err)
			}
			if asJSON {
				if err := a.printJSON(v); err != nil {
					return err
				}
			} else {
				a.printVerified(v)
			}
			if n := len(v.Findings); n > 0 {
				return refused("keep the file as it is and compare it with a backup", fmt.Errorf("the history does not verify: %s", count(n, "finding")))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&head, "head", "", "hash of a head that was kept elsewhere")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) printVerified(v admission.Verified) {
	const most = 50
	for i, f := range v.Findings {
		if i == most {
			fmt.Fprintf(a.out, "✗ and %d more\n", len(v.Findings)-most)
			break
		}
		where := ""
		if f.Conversation != "" {
			where = f.Conversation
		}
		if f.Seq > 0 {
			where += fmt.Sprintf(" event %d", f.Seq)
		}
		if f.Head > 0 {
			where += fmt.Sprintf(" head %d", f.Head)
		}
		if f.Action != "" {
			where += " " + f.Action
		}
		fmt.Fprintf(a.out, "✗ %s%s\n", printable(where), suffix(": ", f.What))
	}
	if len(v.Findings) == 0 {
		fmt.Fprintf(a.out, "✓ %s of %s, %s\n", count(int(v.Events), "event"), count(v.Conversations, "conversation"), count(int(v.Heads), "head"))
	}
	if v.Head != "" {
		fmt.Fprintf(a.out, "head %s\n", v.Head)
	}
	if v.Unsealed > 0 {
		fmt.Fprintf(a.out, "%s grown since that head; it is sealed when the process that writes ends, and once a minute in writ serve\n", map[bool]string{true: "1 conversation has", false: count(v.Unsealed, "conversation") + " have"}[v.Unsealed == 1])
	}
}

func (a *app) auditExport(data *string) *cobra.Command {
	var since, participant string
	cmd := &cobra.Command{
		Use:   "export [--since TIME] [--participant ADDRESS]",
		Short: "Write the history as JSON Lines",
		Long: `Write the history to standard output, one JSON object a line: the events of each conversation in order, then the
heads. docs/history.md has the schema, which is stable. Keep the hash of the last head with the export, elsewhere.`,
		Example: `  writ audit export > history.jsonl
  writ audit export --since 2026-12-01 --participant participant.behavior.main`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			f := admission.ExportFilter{Participant: participant}
			if since != "" {
				t, err := parseSince(since)
				if err != nil {
					return usage("--since %s: write a date as 2026-12-01, a time as 2026-12-01T09:00:00Z, or a duration as 24h", since)
				}
				f.Since = t
			}
			st, err := sqlite.OpenReadOnly(a.ctx, dataDir(*data))
			if err != nil {
				return refused("--data names the data directory of the runs", err)
			}
			defer st.Close()
			w := bufio.NewWriter(a.out)
			if _, err := admission.Export(a.ctx, st, w, f); err != nil {
				return refused("", err)
			}
			if err := w.Flush(); err != nil {
				return refused("", fmt.Errorf("writing the export: %w", err))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "only what was written since: a date, an RFC 3339 time, or a duration back from now")
	cmd.Flags().StringVar(&participant, "participant", "", "only events of this participant's address")
	return cmd
}

// parseSince reads a date, a time or a duration back from now.
func parseSince(s string) (time.Time, error) {
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return time.Now().Add(-d), nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, s, time.Local); err == nil {
		return t, nil
	}
	return time.Parse(time.RFC3339, s)
}
