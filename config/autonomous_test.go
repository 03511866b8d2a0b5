package config

import (
	"strings"
	"testing"
	"time"
)

func policy(t *testing.T, text string) *Autonomous {
	t.Helper()
	cfg, report := parse(t, "react: {model: anthropic/m, autonomous: {prompt: go, "+text+"}}\nsurfaces: {as_consumer: {agents: {main: {tools: []}}}}\n")
	if !report.OK() {
		t.Fatal(report.Err())
	}
	return agent(t, cfg, "main").Autonomous
}

// TestNext: when a run is due after a time, by interval and cron, through windows and changes of the clocks.
func TestNext(t *testing.T) {
	for _, c := range []struct{ policy, after, want string }{
		{"every: 90m", "2026-07-13T09:00:00Z", "2026-07-13T10:30:00Z"},
		{`cron: "0 9 * * 1-5"`, "2026-07-17T09:00:00Z", "2026-07-20T09:00:00Z"},
		{`cron: "*/15 * * * *"`, "2026-07-17T09:01:00Z", "2026-07-17T09:15:00Z"},
		{`cron: "30 2 * * *", timezone: Europe/Berlin`, "2026-03-28T12:00:00+01:00", "2026-03-30T02:30:00+02:00"}, // 02:30 of the 29th does not exist
		{`cron: "0 9 * * *", timezone: Europe/Berlin`, "2026-10-24T09:00:00+02:00", "2026-10-25T09:00:00+01:00"},
		{`every: 1h, windows: [{from: "08:00", to: "18:00"}]`, "2026-07-13T17:30:00Z", "2026-07-14T08:00:00Z"},
		{`every: 1h, windows: [{days: [mon], from: "08:00", to: "18:00"}]`, "2026-07-13T17:30:00Z", "2026-07-20T08:00:00Z"},
		{`every: 1h, windows: [{from: "08:00", to: "09:00"}, {from: "12:00", to: "13:00"}]`, "2026-07-13T09:30:00Z", "2026-07-13T12:00:00Z"},
		{`every: 1h, windows: [{from: "20:00"}]`, "2026-07-13T22:30:00Z", "2026-07-13T23:30:00Z"},
		{`cron: "*/10 * * * *", windows: [{days: [sat, sun], from: "08:05", to: "08:25"}]`, "2026-07-13T09:00:00Z", "2026-07-18T08:10:00Z"},
		{`cron: "0 3 * * *", windows: [{from: "08:00", to: "09:00"}]`, "2026-07-13T09:00:00Z", ""}, // never both
		{`cron: "0 0 30 2 *"`, "2026-07-13T09:00:00Z", ""},
	} {
		t.Run(c.policy+" after "+c.after, func(t *testing.T) {
			after, err := time.Parse(time.RFC3339, c.after)
			if err != nil {
				t.Fatal(err)
			}
			got := policy(t, c.policy).Next(after)
			if c.want == "" {
				if !got.IsZero() {
					t.Errorf("%s, want none", got)
				}
				return
			}
			want, err := time.Parse(time.RFC3339, c.want)
			if err != nil {
				t.Fatal(err)
			}
			if !got.Equal(want) {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

func TestAutonomousRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"prompt: go": "neither every nor cron",
		`prompt: go, every: 1m, cron: "0 9 * * *"`: "both every and cron",
		"every: 1m":                                                        "no prompt",
		`prompt: go, cron: "0 9 * *"`:                                      "has not five fields",
		`prompt: go, cron: "TZ=UTC 0 9 * *"`:                               "has not five fields",
		`prompt: go, cron: "@daily"`:                                       "has not five fields",
		`prompt: go, cron: "61 9 * * *"`:                                   "autonomous.cron",
		"prompt: go, every: 1m, timezone: Mars/Base":                       "there is no time zone",
		"prompt: go, every: 1m, timezone: Local":                           "there is no time zone",
		`prompt: go, every: 1m, windows: [{days: [someday]}]`:              "no day of the week",
		`prompt: go, every: 1m, windows: [{from: "8"}]`:                    "no time of the day",
		`prompt: go, every: 1m, windows: [{from: "24:30"}]`:                "no time of the day",
		`prompt: go, every: 1m, windows: [{from: "18:00", to: "08:00"}]`:   "closes before it opens",
		"prompt: go, every: 1m, episode: continue, limits: {in_flight: 2}": "cannot run at the same time",
		"prompt: go, every: 10ms":                                          "every",
	} {
		_, report := Parse("writ.yaml", []byte("react: {model: anthropic/m, autonomous: {"+text+"}}\nsurfaces: {as_consumer: {agents: {main: {tools: []}}}}\n"), t.TempDir())
		if report.OK() || !strings.Contains(lines(report.Errors), want) {
			t.Errorf("%s: %s, want %q", text, lines(report.Errors), want)
		}
	}
}
