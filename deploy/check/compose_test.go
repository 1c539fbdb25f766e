package check

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"sigs.k8s.io/yaml"
)

// The file holds to the Compose specification, its images have a full version, nothing is open to
// other machines, and what is mounted exists.
func TestComposeFileIsValid(t *testing.T) {
	t.Parallel()
	options, err := cli.NewProjectOptions([]string{"../compose.yaml"}, cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pinned := regexp.MustCompile(`^[a-z0-9.-]+\.[a-z]+/[a-z0-9/-]+:v?\d+\.\d+\.\d+(?:@sha256:[0-9a-f]{64})?$`)
	for name, service := range project.Services {
		if service.Build == nil && !pinned.MatchString(service.Image) {
			t.Errorf("%s: the image %q has no full version", name, service.Image)
		}
		for _, port := range service.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is open to other machines", name, port.Published)
			}
		}
		for _, volume := range service.Volumes {
			if volume.Type != "bind" {
				continue
			}
			if _, err := os.Stat(volume.Source); err != nil || !volume.ReadOnly {
				t.Errorf("%s: %s is not there, or can be written: %v", name, volume.Source, err)
			}
		}
	}
	version := func(image string) string { return regexp.MustCompile(`@.*`).ReplaceAllString(image, "") }
	module, err := os.ReadFile("../../go.mod")
	if tested := regexp.MustCompile(`etcd/server/v3 (\S+)`).FindSubmatch(module); err != nil || tested == nil || version(project.Services["etcd-1"].Image) != "quay.io/coreos/etcd:"+string(tested[1]) {
		t.Errorf("%s is not the etcd of the tests, %s: %v", project.Services["etcd-1"].Image, tested, err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if tested := regexp.MustCompile(`versitygw@(\S+)`).FindSubmatch(makefile); err != nil || tested == nil || version(project.Services["bucket"].Image) != "ghcr.io/versity/versitygw:"+string(tested[1]) {
		t.Errorf("%s is not the versitygw of the tests, %s: %v", project.Services["bucket"].Image, tested, err)
	}
	for name, count := range map[string]int{"streamer-": 3, "etcd-": 3, "mongodb": 1, "shop": 1, "prometheus": 1, "grafana": 1} {
		for service := range project.Services {
			if strings.HasPrefix(service, name) {
				count--
			}
		}
		if count != 0 {
			t.Errorf("%d services of %s are missing", count, name)
		}
	}
	// The variables that the nodes get are checked by the node itself: config check refuses unknown
	// ones.
	dir := t.TempDir()
	binary := filepath.Join(dir, "streamer")
	output(t, nil, "make", "-s", "-C", "../..", "build", "OUT="+binary)
	environ := []string{}
	for key, value := range project.Services["streamer-1"].Environment {
		environ = append(environ, key+"="+*value)
	}
	var found struct{ OK bool }
	if text := output(t, environ, binary, "config", "check", "-o", "json"); yaml.Unmarshal([]byte(text), &found) != nil || !found.OK {
		t.Errorf("the nodes' configuration: %s", text)
	}
}
