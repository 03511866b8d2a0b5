package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Autonomous is an agent's policy for acting by itself: when, with what, how often, and what ends it.
type Autonomous struct {
	Every    time.Duration // from one beginning to the next; 0 = Cron
	Cron     string        // five fields: minute, hour, day of the month, month, day of the week
	Timezone string
	Windows  []Window // empty = at any time
	Prompt   string   // what is said to the agent each time
	// Attempts bounds the runs in one generation; 0 = no bound.
	Attempts int
	InFlight int // runs at the same time
	Actions  int // tool actions in one run; 0 = the agent's own bound
	// Stop ends the policy after a run that did not answer (failure_policy: stop). An unknown outcome always does.
	Stop bool
	// Continue makes all runs of a generation one conversation (episode: continue); otherwise each has one of its own.
	Continue bool

	zone *time.Location
	cron cron.Schedule
}

// Window is a time of the day on some days of the week in which a run may begin.
type Window struct {
	Days []time.Weekday // empty = every day
	From time.Duration  // since midnight
	To   time.Duration  // since midnight, after From; not in it any more
}

// lookahead bounds how far Next looks: a policy without an occurrence in that time has none.
const lookahead = 5 * 366 * 24 * time.Hour

// Next is the first time after t at which a run is due; the zero time when there is none within five years. An interval
// counts from t; when that is outside of every window, the next window's beginning is the time.
func (a *Autonomous) Next(t time.Time) time.Time {
	t = t.In(a.zone)
	if a.cron == nil {
		next := t.Add(a.Every)
		if !a.inWindow(next) {
			next = a.opening(next)
		}
		return next
	}
	limit := t.Add(lookahead)
	for next := a.cron.Next(t); !next.IsZero() && next.Before(limit); next = a.cron.Next(next) {
		if a.inWindow(next) {
			return next
		}
		if open := a.opening(next); open.IsZero() {
			return open
		} else if open.After(next) { // nothing before the window opens can be due
			next = open.Add(-time.Second)
		}
	}
	return time.Time{}
}

func (a *Autonomous) inWindow(t time.Time) bool {
	return len(a.Windows) == 0 || slices.ContainsFunc(a.Windows, func(w Window) bool { return w.contains(t) })
}

func (w Window) contains(t time.Time) bool {
	y, m, d := t.Date()
	at := func(since time.Duration) time.Time { // wall clock, so that a change of the clocks moves no window
		return time.Date(y, m, d, int(since/time.Hour), int(since%time.Hour/time.Minute), 0, 0, t.Location())
	}
	return (len(w.Days) == 0 || slices.Contains(w.Days, t.Weekday())) && !t.Before(at(w.From)) && t.Before(at(w.To))
}

// opening is when the next window opens after t.
func (a *Autonomous) opening(t time.Time) time.Time {
	var first time.Time
	for _, w := range a.Windows {
		for day := range 8 {
			y, m, d := t.AddDate(0, 0, day).Date()
			open := time.Date(y, m, d, int(w.From/time.Hour), int(w.From%time.Hour/time.Minute), 0, 0, t.Location())
			if open.After(t) && w.contains(open) {
				if first.IsZero() || open.Before(first) {
					first = open
				}
				break
			}
		}
	}
	return first
}

// String says when, for a person.
func (a *Autonomous) String() string {
	s := "every " + a.Every.String()
	if a.cron != nil {
		s = "cron " + a.Cron
	}
	if a.Timezone != "" {
		s += " " + a.Timezone
	}
	if len(a.Windows) > 0 {
		s += fmt.Sprintf(", in %d windows", len(a.Windows))
	}
	return s
}

// scheduleShape is the policy as written.
type scheduleShape struct {
	positioned
	Every    val[time.Duration] `key:"every" min:"1s" max:"8760h" doc:"The interval from one run's beginning to the next."`
	Cron     val[string]        `key:"cron" doc:"Five fields, minute to day of the week, instead of every."`
	Timezone val[string]        `key:"timezone" default:"UTC" doc:"The time zone of cron and windows, as Europe/Berlin."`
	Windows  val[[]windowShape] `key:"windows" doc:"When a run may begin." default:"at any time"`
	Prompt   val[string]        `key:"prompt" verbatim:"true" doc:"What is said to the agent each time."`
	Limits   scheduleLimits     `key:"limits" doc:"Bounds of the runs."`
	Failure  val[string]        `key:"failure_policy" enum:"continue,stop" default:"continue" doc:"What a run without an answer does to the policy. An unknown outcome always stops it."`
	Episode  val[string]        `key:"episode" enum:"new,continue" default:"new" doc:"Whether each run has a conversation of its own, or all of a generation are one."`
}

type scheduleLimits struct {
	Attempts val[int] `key:"attempts" min:"1" max:"1000000" doc:"Runs in one generation." default:"no bound"`
	InFlight val[int] `key:"in_flight" min:"1" max:"64" default:"1" doc:"Runs at the same time."`
	Actions  val[int] `key:"actions" min:"1" max:"10000" doc:"Tool actions in one run." default:"the agent's bound"`
}

type windowShape struct {
	positioned
	Days val[[]val[string]] `key:"days" doc:"Days of the week, as mon, tue." default:"every day"`
	From val[string]        `key:"from" default:"00:00" doc:"When it opens, as 08:00."`
	To   val[string]        `key:"to" default:"24:00" doc:"When it closes, as 18:30."`
}

var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// autonomousOf reads the policy: the first block that has one wins whole.
func (c *checker) autonomousOf(a *Agent, r *resolver) {
	for _, b := range r.blocks {
		s := b.Autonomous
		if s == nil {
			continue
		}
		p := &Autonomous{Every: s.Every.V, Cron: s.Cron.V, Timezone: s.Timezone.V, Prompt: s.Prompt.V, Attempts: s.Limits.Attempts.V, InFlight: 1,
			Actions: s.Limits.Actions.V, Stop: s.Failure.V == "stop", Continue: s.Episode.V == "continue", zone: time.UTC}
		if s.Limits.InFlight.Set {
			p.InFlight = s.Limits.InFlight.V
		}
		c.cadence(p, s)
		for i := range s.Windows.V {
			c.window(p, &s.Windows.V[i])
		}
		if !s.Prompt.Set && !s.Prompt.Bad {
			c.report.errorf(s.Pos, "say what the agent is asked each time", "%s.autonomous has no prompt", b.name)
		}
		if p.Continue && p.InFlight > 1 {
			c.report.errorf(s.Limits.InFlight.Pos, "leave it out, or write episode: new", "%s.autonomous: runs of one conversation cannot run at the same time", b.name)
		}
		r.note("autonomous", p.String(), b.name, s.Pos)
		a.Autonomous = p
		return
	}
}

func (c *checker) cadence(p *Autonomous, s *scheduleShape) {
	if s.Timezone.Set {
		zone, err := time.LoadLocation(s.Timezone.V)
		if err != nil || s.Timezone.V == "Local" { // what is local differs from machine to machine
			c.report.errorf(s.Timezone.Pos, "write a name of the IANA database, as Europe/Berlin", "autonomous.timezone: there is no time zone %s", quote(s.Timezone.V))
		} else {
			p.zone = zone
		}
	}
	switch {
	case s.Every.present() && s.Cron.present():
		c.report.errorf(s.Cron.Pos, "keep one of them", "autonomous has both every and cron")
	case !s.Every.present() && !s.Cron.present():
		c.report.errorf(s.Pos, "write every: 5m, or cron: \"0 9 * * 1-5\"", "autonomous has neither every nor cron")
	case s.Cron.Set:
		if strings.ContainsAny(s.Cron.V, "=@") || len(strings.Fields(s.Cron.V)) != 5 { // the zone has a key of its own
			c.report.errorf(s.Cron.Pos, "write five fields: minute, hour, day of the month, month, day of the week", "autonomous.cron: %s has not five fields", quote(s.Cron.V))
			return
		}
		sched, err := cron.ParseStandard(s.Cron.V)
		if err != nil {
			c.report.errorf(s.Cron.Pos, "write five fields: minute, hour, day of the month, month, day of the week", "autonomous.cron: %v", err)
			return
		}
		if spec, ok := sched.(*cron.SpecSchedule); ok {
			spec.Location = p.zone
		}
		p.cron = sched
	}
}

func (c *checker) window(p *Autonomous, s *windowShape) {
	w := Window{To: 24 * time.Hour}
	for _, d := range s.Days.V {
		i := slices.Index(weekdays, strings.ToLower(d.V))
		if i < 0 {
			c.report.errorf(d.Pos, "one of "+strings.Join(weekdays, ", "), "autonomous.windows: %s is no day of the week", quote(d.V))
			continue
		}
		w.Days = append(w.Days, time.Weekday(i))
	}
	for _, f := range []struct {
		v  val[string]
		to *time.Duration
	}{{s.From, &w.From}, {s.To, &w.To}} {
		if !f.v.Set {
			continue
		}
		d, ok := clock(f.v.V)
		if !ok {
			c.report.errorf(f.v.Pos, "write a time of the day as 08:00", "autonomous.windows: %s is no time of the day", quote(f.v.V))
			return
		}
		*f.to = d
	}
	if w.To <= w.From {
		c.report.errorf(s.Pos, "write two windows for a time over midnight", "autonomous.windows: it closes before it opens")
		return
	}
	p.Windows = append(p.Windows, w)
}

// clock reads a time of the day, 24:00 included.
func clock(s string) (time.Duration, bool) {
	var h, m int
	if n, err := fmt.Sscanf(s, "%d:%d", &h, &m); n != 2 || err != nil || len(s) != 5 || h < 0 || m < 0 || m > 59 || h > 24 || h == 24 && m > 0 {
		return 0, false
	}
	return time.Duration(h)*time.Hour + time.Duration(m)*time.Minute, true
}

// canonicalAutonomous is the policy as it decides the agent's behaviour.
func canonicalAutonomous(a *Autonomous) any {
	if a == nil {
		return nil
	}
	windows := make([]any, 0, len(a.Windows))
	for _, w := range a.Windows {
		windows = append(windows, map[string]any{"days": w.Days, "from": w.From.String(), "to": w.To.String()})
	}
	return map[string]any{"every": a.Every.String(), "cron": a.Cron, "timezone": a.Timezone, "windows": windows, "prompt": a.Prompt, "attempts": a.Attempts,
		"in_flight": a.InFlight, "actions": a.Actions, "stop": a.Stop, "continue": a.Continue}
}
