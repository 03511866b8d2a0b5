package runtime_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a test leaves a goroutine behind: whoever starts one waits for it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
