//go:build !unix

package mcpclient

import (
	"os"
	"os/exec"
)

// Without process groups only the child itself is ended.

func ownGroup(*exec.Cmd) {}

func terminateGroup(pid int) { killGroup(pid) }

func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}
