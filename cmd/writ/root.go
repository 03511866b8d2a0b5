package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes (docs/cli.md).
const (
	exitOK          = 0
	exitRefused     = 1 // refused or invalid input
	exitUsage       = 2
	exitNoAnswer    = 3
	exitWaiting     = 4 // for an approval
	exitInterrupted = 130
)

// exitError carries the exit code of a command whose message has been, or need not be, printed another way.
type exitError struct {
	code int
	err  error // nil = nothing to print
	hint string
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

func refused(hint string, err error) error {
	return &exitError{code: exitRefused, err: err, hint: hint}
}

// app is what the commands share: the ends of the process, so that tests run them in process.
type app struct {
	in       io.Reader
	out, err io.Writer
	ctx      context.Context
}

func run(args []string, in io.Reader, out, errw io.Writer) int {
	ctx, stop := interruptible(errw)
	defer stop()
	a := &app{in: in, out: out, err: errw, ctx: ctx}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errw)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	var ee *exitError
	if errors.As(err, &ee) {
		if ee.err != nil {
			fmt.Fprintf(errw, "writ: %v\n", ee.err)
			if ee.hint != "" {
				fmt.Fprintf(errw, "hint: %s\n", ee.hint)
			}
		}
		return ee.code
	}
	fmt.Fprintf(errw, "writ: %v\n", err)
	if strings.HasPrefix(err.Error(), "unknown ") || strings.Contains(err.Error(), "flag") || strings.Contains(err.Error(), "arg(s)") {
		fmt.Fprintln(errw, "hint: writ help lists the commands, writ COMMAND --help their flags")
		return exitUsage
	}
	return exitRefused
}

// errInterrupted is the cause of a context that the person has cancelled.
var errInterrupted = errors.New("stopped by the person")

// interruptible returns a context that the first Ctrl-C cancels; the second one ends the process at once.
func interruptible(errw io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	ch := make(chan os.Signal, 2)
	done := make(chan struct{})
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	signal.Ignore(syscall.SIGPIPE) // a reader that closes must not cut a call off: the turn goes on unseen
	go func() {
		select {
		case <-ch:
		case <-done:
			return
		}
		fmt.Fprintln(errw, "\nwrit: stopping; each call still gets its result. Again to end at once")
		cancel(errInterrupted)
		select {
		case <-ch:
			os.Exit(exitInterrupted)
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(done)
		cancel(nil)
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "writ",
		Short: "A governed runtime for tool-using agents",
		Long: `writ runs agents that are declared in YAML. Every tool action a model asks for is judged in
order, recorded in a durable ledger before it has any effect, run at most once, and settled
as what really happened, "unknown" included.

Try it:         writ demo
Check a file:   writ check -c writ.yaml
Run a turn:     writ run -c writ.yaml --model recorded:FILE "message"
See the ledger: writ actions`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = false
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage("%v", err) })
	root.AddCommand(a.checkCommand(), a.explainCommand(), a.runCommand(), a.chatCommand(), a.actionsCommand(), a.approvalsCommand(),
		a.approveCommand(), a.declineCommand(), a.auditCommand(), a.schedulesCommand(), a.timelineCommand(), a.demoCommand(), a.gatewayCommand(), a.serveCommand(), a.tokenCommand(),
		a.schemaCommand(), a.versionCommand(), a.demoServerCommand())
	return root
}

// version is set by the linker in releases; otherwise the build's own stamp is used.
var version = ""

func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" {
		v = "(devel)"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 && v == "(devel)" {
			v += " " + s.Value[:12]
		}
	}
	return v
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		info, _ := debug.ReadBuildInfo()
		goVersion := ""
		if info != nil {
			goVersion = " " + info.GoVersion
		}
		fmt.Fprintf(a.out, "writ %s%s\n", buildVersion(), goVersion)
		return nil
	}}
}
