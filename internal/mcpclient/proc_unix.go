//go:build unix

package mcpclient

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the child the leader of a process group, so that what it starts (a shell's or npx's children) can
// be ended with it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func terminateGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGTERM) }

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
