package check

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Two releases in a namespace have no object, no cluster and no pod in common.
func TestTwoReleasesFitIntoANamespace(t *testing.T) {
	t.Parallel()
	type selection struct{ MatchLabels map[string]string }
	taken, pods, selectors := map[string]string{}, map[string]map[string]string{}, map[string][]map[string]string{}
	for _, release := range []string{"streamer", "a", "a-streamer", "streamer-client"} {
		c, files, err := rendered(release, values(t, strings.Replace(everything, "createNamespace: true", "", 1)))
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range sorted(t, c, files) {
			var o struct {
				Kind     string
				Metadata struct{ Name string }
				Spec     struct {
					Selector any
				}
			}
			if err := yaml.Unmarshal([]byte(object), &o); err != nil {
				t.Fatal(err)
			}
			name := o.Kind + " " + o.Metadata.Name
			if before, twice := taken[name]; twice {
				t.Errorf("%s is of %s and of %s", name, before, release)
			}
			taken[name] = release
			switch o.Kind {
			case "StatefulSet":
				var s appsv1.StatefulSet
				if err := yaml.Unmarshal([]byte(object), &s); err != nil {
					t.Fatal(err)
				}
				pods[release] = s.Spec.Template.Labels
				selectors[release] = append(selectors[release], s.Spec.Selector.MatchLabels)
			case "Service":
				var s corev1.Service
				if err := yaml.Unmarshal([]byte(object), &s); err != nil {
					t.Fatal(err)
				}
				selectors[release] = append(selectors[release], s.Spec.Selector)
			case "PodDisruptionBudget", "ServiceMonitor":
				text, _ := yaml.Marshal(o.Spec.Selector)
				var s selection
				if err := yaml.Unmarshal(text, &s); err != nil {
					t.Fatal(err)
				}
				selectors[release] = append(selectors[release], s.MatchLabels)
			}
		}
	}
	ids := map[string]bool{}
	for release := range pods {
		c, files, err := rendered(release, values(t, image))
		if err != nil {
			t.Fatal(err)
		}
		ids[regexp.MustCompile(`\n +id: (\S+)`).FindStringSubmatch(strings.Join(sorted(t, c, files), "\n"))[1]] = true
		for other, all := range selectors {
			for _, s := range all {
				if selects(s, pods[release]) != (release == other) {
					t.Errorf("a selector of %s, %v: the pods of %s", other, s, release)
				}
			}
		}
	}
	if len(ids) != len(pods) {
		t.Errorf("the clusters are %v", ids)
	}
}

func selects(selector, labels map[string]string) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return len(selector) > 0
}

// A changed configuration changes the pods, so that Kubernetes restarts them one after the other;
// the same one does not.
func TestChangedConfigurationRollsOut(t *testing.T) {
	t.Parallel()
	sum := func(text string) string {
		for _, object := range render(t, values(t, image+text)) {
			var s appsv1.StatefulSet
			if decode(t, object) == "StatefulSet" && yaml.Unmarshal([]byte(object), &s) == nil {
				return s.Spec.Template.Annotations["checksum/config"]
			}
		}
		return ""
	}
	before := sum("")
	if before == "" || sum("") != before || sum("podAnnotations: {a: b}") != before {
		t.Errorf("the sum of the same configuration is %q, then %q", before, sum(""))
	}
	for _, change := range []string{"config: {log: {format: json}}", "identities: false", "probes: {port: 8081}"} {
		if sum(change) == before {
			t.Errorf("%s changes nothing", change)
		}
	}
}

// Values that are misspelt or that could not work are refused before anything is installed.
func TestBadValuesAreRefused(t *testing.T) {
	t.Parallel()
	for text, names := range map[string]string{
		"":                                     "image.repository",
		image + "replica: 3":                   "replica",
		image + "replicas: 0":                  "replicas",
		image + "tls: {enable: false}":         "enable",
		image + "identities: 'no'":             "identities",
		image + "service: {type: External}":    "/service/type",
		image + "ingress: {hosts: one}":        "/ingress/hosts",
		image + "mongodbURI: mongodb://u:p@db": "mongodbURI", // a password, in a ConfigMap
		image + "fullnameOverride: " + strings.Repeat("x", 53): "fullnameOverride",
	} {
		if _, _, err := rendered("streamer", values(t, text)); err == nil || !strings.Contains(err.Error(), names) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, _, err := rendered(strings.Repeat("r", 53), values(t, image)); err == nil || !strings.Contains(err.Error(), "fullnameOverride") {
		t.Errorf("a name that is too long: %v", err)
	}
}

// The values to try it need no secret, and the node accepts the configuration that they and the
// defaults give.
func TestValuesToTryItNeedNoSecret(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(chartPath, "values-demo.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c, files, err := rendered("try", values(t, image+"mongodbURI: mongodb://mongodb:27017/?replicaSet=rs0\n"+string(text)))
	if err != nil {
		t.Fatal(err)
	}
	notes := files["streamer/templates/NOTES.txt"]
	if !strings.Contains(notes, "http://try-streamer-client.streamer.svc:8080") || strings.Contains(notes, "must have") || !strings.Contains(notes, "Authentication is off") {
		t.Errorf("the notes say\n%s", notes)
	}
	for _, object := range sorted(t, c, files) {
		if decode(t, object) != "ConfigMap" {
			if strings.Contains(object, "secretName") {
				t.Errorf("there is a secret in\n%s", object)
			}
			continue
		}
		var config corev1.ConfigMap
		if err := yaml.Unmarshal([]byte(object), &config); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		binary, file := filepath.Join(dir, "streamer"), filepath.Join(dir, "config.yaml")
		if err := os.WriteFile(file, []byte(config.Data["config.yaml"]), 0o600); err != nil {
			t.Fatal(err)
		}
		output(t, nil, "make", "-s", "-C", "../..", "build", "OUT="+binary)
		var found struct{ OK bool }
		if said := output(t, []string{"STREAMER_NODE_ID=try-streamer-0"}, binary, "config", "check", "-f", file, "-o", "json"); yaml.Unmarshal([]byte(said), &found) != nil || !found.OK {
			t.Errorf("%s in\n%s", said, config.Data["config.yaml"])
		}
	}
}

// A CronJob's name may have 52 characters, and names of two releases that differ differ when they
// are shortened.
func TestBackupOfALongNameHasAName(t *testing.T) {
	t.Parallel()
	taken := map[string]string{}
	for _, name := range []string{"a", strings.Repeat("x", 45), strings.Repeat("x", 46), strings.Repeat("x", 51) + "y", strings.Repeat("x", 52), strings.Repeat("x", 35) + "-" + strings.Repeat("y", 16)} {
		for _, object := range render(t, values(t, image+"backup: {enabled: true}\nfullnameOverride: "+name)) {
			var job batchv1.CronJob
			if decode(t, object) != "CronJob" {
				continue
			}
			if err := yaml.Unmarshal([]byte(object), &job); err != nil {
				t.Fatal(err)
			}
			if !regexp.MustCompile(`^[a-z]([a-z0-9]|-[a-z0-9]){0,51}$`).MatchString(job.Name) || len(job.Name) > 52 || !strings.HasSuffix(job.Name, "-backup") {
				t.Errorf("the backup of %s is %s", name, job.Name)
			}
			if len(name) <= 45 && job.Name != name+"-backup" {
				t.Errorf("%s is shortened to %s", name, job.Name)
			}
			if before, twice := taken[job.Name]; twice {
				t.Errorf("%s and %s have the backup %s", before, name, job.Name)
			}
			taken[job.Name] = name
		}
	}
	if len(taken) != 6 {
		t.Errorf("the backups are %v", taken)
	}
}

// The names that a certificate must have are documented as cert-manager is asked for them, and
// Prometheus verifies one of them.
func TestNamesOfTheCertificateAreDocumented(t *testing.T) {
	t.Parallel()
	var names []string
	var verified string
	for _, object := range render(t, values(t, image+"tls: {certManager: {enabled: true, issuerRef: {kind: ClusterIssuer, name: ca}}}\nserviceMonitor: {enabled: true}")) {
		var o struct {
			Spec struct {
				DNSNames  []string
				Endpoints []struct{ TLSConfig struct{ ServerName string } }
			}
		}
		if kind := decode(t, object); kind != "Certificate" && kind != "ServiceMonitor" {
			continue
		}
		if err := yaml.Unmarshal([]byte(object), &o); err != nil {
			t.Fatal(err)
		}
		names = append(names, o.Spec.DNSNames...)
		for _, e := range o.Spec.Endpoints {
			verified = e.TLSConfig.ServerName
		}
	}
	if len(names) == 0 || !slices.Contains(names, verified) {
		t.Errorf("Prometheus verifies %q, and the certificate has %q", verified, names)
	}
	comments, err := os.ReadFile(filepath.Join(chartPath, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	said := strings.NewReplacer("NAMESPACE", "streamer", "NAME", "streamer").Replace(string(comments))
	for place, text := range map[string]string{"values.yaml": said, "the head of the plain manifests": plainHead} {
		words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,\n", r) })
		for _, name := range names {
			if !slices.Contains(words, name) {
				t.Errorf("%s does not name %s", place, name)
			}
		}
	}
}
