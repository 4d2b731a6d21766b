package telemetry

import "github.com/lockstep-cd/lockstep/pkg/fault"

// Settings is what every service configures about how it is observed; a service's Config embeds it.
type Settings struct {
	// HealthAddress is the address that serves /healthz, /readyz, /version and /metrics; empty for none. Keep it off the internet.
	HealthAddress string `koanf:"health_address"`
	// LogLevel is debug, info, warn or error.
	LogLevel string `koanf:"log_level" default:"info"`
}

// Check returns what is wrong with the settings, by key.
func (s Settings) Check() []fault.Field { return CheckLevel("log_level", s.LogLevel) }
