package config_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/mongostream/streamer/internal/config"
)

// deploy is where the samples are.
const deploy = "../../deploy"

// A statefulSet is what matters here of one.
type statefulSet struct {
	Kind string
	Spec struct {
		Replicas int
		Template struct {
			Spec struct {
				Grace      int `yaml:"terminationGracePeriodSeconds"`
				Containers []struct {
					Env []struct{ Name, Value string }
				}
			}
		}
	}
}

// The samples' variables are ours, and their patience is longer than a planned stop may take.
func TestSamplesOfDeploymentsFitTheConfiguration(t *testing.T) {
	manifest, err := os.ReadFile(filepath.Join(deploy, "kubernetes", "streamer.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	decoder, found := yaml.NewDecoder(bytes.NewReader(manifest)), false
	for {
		var s statefulSet
		if err := decoder.Decode(&s); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if s.Kind != "StatefulSet" {
			continue
		}
		found = true
		var environ []string
		for _, v := range s.Spec.Template.Spec.Containers[0].Env {
			if v.Value == "" { // from elsewhere
				v.Value = map[string]string{"STREAMER_NODE_ID": "streamer-0", "STREAMER_MONGODB_URI": "mongodb://db/?replicaSet=rs"}[v.Name]
			}
			environ = append(environ, v.Name+"="+regexp.MustCompile(`\$\(STREAMER_NODE_ID\)`).ReplaceAllString(v.Value, "streamer-0"))
		}
		cfg, err := config.Load("", environ)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Cluster.ExpectedNodes != s.Spec.Replicas || cfg.GRPC.Advertise != "streamer-0.streamer:9090" {
			t.Errorf("%d of %d nodes, at %s", cfg.Cluster.ExpectedNodes, s.Spec.Replicas, cfg.GRPC.Advertise)
		}
		patient(t, cfg, time.Duration(s.Spec.Template.Spec.Grace)*time.Second)
	}
	if !found {
		t.Error("there is no StatefulSet")
	}
	unit, err := os.ReadFile(filepath.Join(deploy, "systemd", "streamer.service"))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load("", nil)
	if err != nil {
		t.Fatal(err)
	}
	grace, err := time.ParseDuration(string(regexp.MustCompile(`TimeoutStopSec=(\S+)`).FindSubmatch(unit)[1]))
	if err != nil {
		t.Fatal(err)
	}
	patient(t, cfg, grace)
}

// patient holds the time until a stop is forced against what a planned one may take.
func patient(t *testing.T, cfg config.Config, grace time.Duration) {
	t.Helper()
	stop := cfg.Reliability.Shutdown
	if planned := stop.DrainTimeout + stop.FlushTimeout + stop.CheckpointTimeout; grace < planned+10*time.Second {
		t.Errorf("%s until SIGKILL, and a planned stop may take %s", grace, planned)
	}
}
