package wiring

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"time"

	"github.com/mongostream/streamer/internal/config"
)

// renewEvery is how often the files of the connection string are checked.
const renewEvery = 10 * time.Second

// runRenewal reconnects to MongoDB when the connection string's file, or a file that it names, has
// changed: a rotated password, a renewed certificate. Until the new credentials are accepted, the
// open connections stay.
func (s *Service) runRenewal(ctx context.Context) {
	current := s.opts.Config.MongoDB.URI
	failure := ""
	stands := stampOf(current)
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		next := current
		var err error
		if s.opts.URIFile != "" {
			next, err = config.ReadURI(s.opts.URIFile)
		}
		stamp := stampOf(next)
		if err == nil && stamp == stands {
			continue
		}
		if err == nil {
			err = s.renew(ctx, next)
		}
		switch {
		case err == nil:
			current = next
			stands = stamp
			failure = ""
			s.logger.Info("connected to MongoDB anew", "uri", next)
		case err.Error() != failure && ctx.Err() == nil:
			failure = err.Error()
			s.logger.Error("changed connection string is not in force, the previous one stays", "error", err)
		}
	}
}

// renew reconnects, within the server selection timeout.
func (s *Service) renew(ctx context.Context, uri config.URI) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Config.MongoDB.ServerSelectionTimeout)
	defer cancel()
	return s.mongo.Renew(ctx, string(uri), s.origin.Of)
}

// stampOf changes with a connection string and with the contents of the files that it names.
func stampOf(uri config.URI) string {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%q", string(uri))
	for _, path := range uri.Files() {
		content, err := os.ReadFile(path)
		_, _ = fmt.Fprintf(h, "%q %q %v", path, content, err)
	}
	return string(h.Sum(nil))
}
