package model_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	sdkanthropic "github.com/anthropics/anthropic-sdk-go/v2"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/v2/option"
	sdkopenai "github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

const deltas = 2000

// longAnswer repeats the text delta of a fixture.
func longAnswer(b *testing.B, vendor, mark string) []byte {
	b.Helper()
	f := loadFixture(b, vendor, "testdata/wire/"+vendor+"/text.sse")
	text := string(f.answers[0].pieces[0])
	at := strings.Index(text, mark)
	begin := strings.LastIndex(text[:at], "\n\n") + 2
	end := at + strings.Index(text[at:], "\n\n") + 2
	return []byte(text[:begin] + strings.Repeat(text[begin:end], deltas) + text[end:])
}

// gaps measures the time between what a stream yields.
type gaps struct {
	all  []time.Duration
	last time.Time
}

func (g *gaps) begin() { g.last = time.Now() }

func (g *gaps) tick() {
	now := time.Now()
	g.all = append(g.all, now.Sub(g.last))
	g.last = now
}

func (g *gaps) at(p float64) float64 { return float64(g.all[int(float64(len(g.all)-1)*p)]) }

func (g *gaps) mean() float64 {
	var sum time.Duration
	for _, d := range g.all {
		sum += d
	}
	return float64(sum) / float64(len(g.all))
}

// BenchmarkDelta measures what a streamed delta costs through each adapter, beside the bare SDK over the same bytes. The
// ratio is adapter to SDK; added is the difference of the percentiles.
func BenchmarkDelta(b *testing.B) {
	for _, c := range []struct {
		vendor, mark string
		sdk          func(b *testing.B, hc *http.Client, g *gaps)
	}{
		{"anthropic", "text_delta", bareAnthropic},
		{"openai-chat", `"content":"It is "`, bareChat},
		{"openai-responses", "response.output_text.delta", bareResponses},
	} {
		b.Run(c.vendor, func(b *testing.B) {
			data := longAnswer(b, c.vendor, c.mark)
			var bare, ours gaps
			for b.Loop() {
				c.sdk(b, (&wire{data: data}).client(), &bare)
				m := openWire(b, c.vendor, &wire{data: data})
				ours.begin()
				for _, err := range m.Stream(b.Context(), request()) {
					if err != nil {
						b.Fatal(err)
					}
					ours.tick()
				}
				_ = m.Close()
			}
			slices.Sort(bare.all)
			slices.Sort(ours.all)
			b.ReportMetric(ours.mean(), "ns/delta")
			b.ReportMetric(bare.mean(), "sdk-ns/delta")
			b.ReportMetric(ours.mean()/bare.mean(), "ratio")
			b.ReportMetric(ours.at(0.5)-bare.at(0.5), "added-p50-ns")
			b.ReportMetric(ours.at(0.99)-bare.at(0.99), "added-p99-ns")
			fmt.Fprintf(os.Stderr, "%s: %.2f µs a delta, %.2f µs through the bare SDK: ×%.2f\n", c.vendor, ours.mean()/1e3, bare.mean()/1e3, ours.mean()/bare.mean())
		})
	}
}

func bareAnthropic(b *testing.B, hc *http.Client, g *gaps) {
	s := sdkanthropic.NewMessageService(anthropicoption.WithEnvironmentProduction(), anthropicoption.WithHTTPClient(hc), anthropicoption.WithMaxRetries(0), anthropicoption.WithoutOpenTelemetry())
	st := s.NewStreaming(b.Context(), sdkanthropic.MessageNewParams{Model: "m", MaxTokens: 1, Messages: []sdkanthropic.MessageParam{sdkanthropic.NewUserMessage(sdkanthropic.NewTextBlock("go"))}})
	defer st.Close()
	g.begin()
	for st.Next() {
		_ = st.Current()
		g.tick()
	}
	if st.Err() != nil {
		b.Fatal(st.Err())
	}
}

func bareChat(b *testing.B, hc *http.Client, g *gaps) {
	s := sdkopenai.NewChatService(openaioption.WithEnvironmentProduction(), openaioption.WithHTTPClient(hc), openaioption.WithMaxRetries(0))
	st := s.Completions.NewStreaming(b.Context(), sdkopenai.ChatCompletionNewParams{Model: "m", Messages: []sdkopenai.ChatCompletionMessageParamUnion{sdkopenai.UserMessage("go")}})
	defer st.Close()
	g.begin()
	for st.Next() {
		_ = st.Current()
		g.tick()
	}
	if st.Err() != nil {
		b.Fatal(st.Err())
	}
}

func bareResponses(b *testing.B, hc *http.Client, g *gaps) {
	s := responses.NewResponseService(openaioption.WithEnvironmentProduction(), openaioption.WithHTTPClient(hc), openaioption.WithMaxRetries(0))
	st := s.NewStreaming(b.Context(), responses.ResponseNewParams{Model: "m"})
	defer st.Close()
	g.begin()
	for st.Next() {
		_ = st.Current()
		g.tick()
	}
	if st.Err() != nil {
		b.Fatal(st.Err())
	}
}
