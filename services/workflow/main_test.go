package workflow_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lockstep-cd/lockstep/pkg/bus/bustest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, bustest.Leftovers()...) }
