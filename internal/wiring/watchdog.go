package wiring

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// notifySystemd reports the state of the service to systemd, if systemd has started it.
func (s *Service) notifySystemd(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		s.logger.Warn("systemd not notified", "state", state, "error", err)
	}
}

// runWatchdog tells systemd that the process is alive, as long as its components make progress,
// until the context ends. A process that hangs cannot.
func (s *Service) runWatchdog(ctx context.Context) {
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		s.logger.Warn("watchdog of systemd not understood", "error", err)
	}
	if err != nil || within == 0 {
		return
	}
	tick := time.NewTicker(within / 3)
	defer tick.Stop()
	for alive := true; ; {
		switch err := s.components.Alive(); {
		case err == nil:
			s.notifySystemd(daemon.SdNotifyWatchdog)
			alive = true
		case alive:
			s.logger.Error("systemd is left to restart the process", "error", err)
			alive = false
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
