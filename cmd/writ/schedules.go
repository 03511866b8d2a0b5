package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"writ/runtime"
	"writ/store"
	"writ/store/sqlite"
)

// scheduleRow is a schedule as the CLI prints it.
type scheduleRow struct {
	ID           string     `json:"id"`
	Agent        string     `json:"agent"`
	State        string     `json:"state"`
	Reason       string     `json:"reason,omitempty"`
	Generation   int64      `json:"generation"`
	NextAt       *time.Time `json:"next_at"`
	Attempted    int64      `json:"attempted"`
	Succeeded    int64      `json:"succeeded"`
	Failed       int64      `json:"failed"`
	InFlight     int64      `json:"in_flight"`
	Conversation string     `json:"conversation,omitempty"`
	Holder       string     `json:"holder"`
	LeaseUntil   time.Time  `json:"lease_until"`
}

func toScheduleRow(s store.Schedule) scheduleRow {
	r := scheduleRow{ID: s.ID, Agent: s.Agent, State: s.State, Reason: s.Reason, Generation: s.Generation, Attempted: s.Attempted, Succeeded: s.Succeeded,
		Failed: s.Failed, InFlight: s.InFlight, Conversation: s.Conversation, Holder: s.Holder, LeaseUntil: s.LeaseUntil}
	if s.State == store.ScheduleRunning && !s.Next.IsZero() {
		r.NextAt = &s.Next
	}
	return r
}

func (a *app) schedulesCommand() *cobra.Command {
	var data string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "schedules",
		Short: "See and steer the agents that act by themselves",
		Long: `List the schedules of the agents with an autonomous policy. writ serve runs them.

A schedule is running, paused, draining, stopped or done. It stops by itself when nobody knows whether one of its actions
happened: resolve the action (writ actions resolve), then resume. The commands work while another process holds the
data directory.`,
		Example: `  writ schedules
  writ schedules pause watcher
  writ schedules resume watcher --generation 2`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			st, err := sqlite.OpenReadOnly(a.ctx, dataDir(data))
			if err != nil {
				return refused("--data names the data directory of the runs", err)
			}
			defer st.Close()
			list, err := st.Schedules(a.ctx)
			if err != nil {
				return refused("", err)
			}
			return a.printSchedules(list, asJSON)
		},
	}
	fl := cmd.PersistentFlags()
	fl.StringVar(&data, "data", "", "data directory (default: $WRIT_DATA, else .writ)")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	for _, op := range []struct {
		do   runtime.ScheduleDo
		what string
		long string
	}{
		{runtime.Pause, "Begin no more runs", "What runs goes on to its end; nothing new begins until resume."},
		{runtime.Drain, "Begin no more runs, and be paused when none is left", "As pause; the schedule is draining until the last run has ended."},
		{runtime.Resume, "Let a paused or stopped schedule run again", "Also lifts a stop. It is refused while outcomes of the agent's actions are unknown: resolve them first."},
		{runtime.Reset, "Begin a new generation", "Counters start at zero and the next run has a new conversation. A run under way may start nothing more; what it\nhas started is settled under the old generation. It does not lift a stop."},
	} {
		cmd.AddCommand(a.scheduleDo(op.do, op.what, op.long, &data, &asJSON))
	}
	return cmd
}

func (a *app) scheduleDo(do runtime.ScheduleDo, what, long string, data *string, asJSON *bool) *cobra.Command {
	var note string
	generation := int64(-1)
	cmd := &cobra.Command{
		Use:     string(do) + " AGENT",
		Short:   what,
		Long:    what + ".\n\n" + long,
		Example: "  writ schedules " + string(do) + " watcher",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			e, _, err := a.operate(dataDir(*data))
			if err != nil {
				return err
			}
			s, err := a.operateSchedule(e, args[0], runtime.ScheduleOp{Do: do, Generation: generation, By: localActor(), Note: note})
			if cerr := e.close(); cerr != nil {
				fmt.Fprintf(a.err, "writ: closing: %v\n", cerr)
			}
			if err != nil {
				return err
			}
			return a.printSchedules([]store.Schedule{s}, *asJSON)
		},
	}
	cmd.Flags().Int64Var(&generation, "generation", -1, "the generation that is meant; in another one nothing is done (default: the current one)")
	cmd.Flags().StringVar(&note, "note", "", "why, for the record")
	return cmd
}

func (a *app) operateSchedule(e *engine, name string, op runtime.ScheduleOp) (store.Schedule, error) {
	op.ID = name
	if !strings.HasPrefix(name, "participant.") {
		op.ID = runtime.ScheduleID(name)
	}
	if op.Generation < 0 {
		s, err := e.store.Schedule(a.ctx, op.ID)
		if err == nil {
			op.Generation = s.Generation
		}
	}
	s, err := e.runtime.OperateSchedule(a.ctx, op)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return s, refused("writ schedules lists them; a schedule exists once writ serve has run its agent's policy", fmt.Errorf("no schedule of %s", name))
	case errors.Is(err, runtime.ErrUnresolved):
		return s, refused("writ actions resolve ID --as effect_applied|effect_absent|accept_unknown", err)
	case err != nil:
		return s, refused("", err)
	}
	return s, nil
}

func (a *app) printSchedules(list []store.Schedule, asJSON bool) error {
	if asJSON {
		out := make([]scheduleRow, len(list))
		for i, s := range list {
			out[i] = toScheduleRow(s)
		}
		return a.printJSON(out)
	}
	if len(list) == 0 {
		fmt.Fprintln(a.out, "no schedules")
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "AGENT\tSTATE\tGENERATION\tNEXT\tRUNS\tANSWERED\tFAILED\tRUNNING\tNOTE")
	for _, s := range list {
		next := "–"
		if r := toScheduleRow(s); r.NextAt != nil {
			next = r.NextAt.Local().Format(time.DateTime)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%d\t%d\t%d\t%s\n", s.Agent, s.State, s.Generation, next, s.Attempted, s.Succeeded, s.Failed, s.InFlight, printable(s.Reason))
	}
	return w.Flush()
}
