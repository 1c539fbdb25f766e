package check

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/releaseutil"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

//nolint:gochecknoglobals // a flag
var rewrite = flag.Bool("rewrite", false, "write what is rendered from the chart")

const (
	chartPath = "../chart"
	plainPath = "../kubernetes/streamer.yaml"
	plainHead = `# Rendered from deploy/chart by make manifests: three nodes that share the partitions, closed: TLS, identities, a network policy, no rights.
# docs/security.md and docs/operations.md say why each line is there. Before use:
#   - the image, by its digest, and the addresses of MongoDB and etcd in the ConfigMap
#   - the secret streamer: mongodb-uri, identities (docs/access.md), etcd-ca.crt, etcd.crt, etcd.key
#   - the secret streamer-tls: tls.crt, tls.key, and ca.crt of their authority, valid for *.streamer.streamer.svc, *.streamer,
#     streamer.streamer.svc and streamer-client.streamer.svc, for example of cert-manager
#   - in the network policy where clients, MongoDB and etcd are
`
)

// image is the only value that is required.
const image = "image: {repository: registry.example.com/streamer}\n"

// everything turns on what is off by default.
const everything = `
createNamespace: true
image: {repository: registry.example.com/streamer, digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}
imagePullSecrets: [{name: registry}]
tls: {certManager: {enabled: true, issuerRef: {kind: ClusterIssuer, name: ca}}}
probes: {port: 8081}
nodeSelector: {disk: fast}
tolerations: [{key: a, operator: Exists}]
podAnnotations: {a: b}
podLabels: {team: data}
networkPolicy: {extraEgress: [{to: [{ipBlock: {cidr: 192.0.2.0/24}}], ports: [{protocol: TCP, port: 443}]}]}
service: {type: LoadBalancer, annotations: {a: b}}
ingress: {enabled: true, className: nginx, annotations: {a: b}, hosts: [streamer.example.com], tls: [{hosts: [streamer.example.com], secretName: public}]}
priorityClassName: high
extraEnv: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: kafka, key: password}}}]
extraVolumes: [{name: kafka, secret: {secretName: kafka}}]
extraVolumeMounts: [{name: kafka, mountPath: /etc/kafka, readOnly: true}]
serviceMonitor: {enabled: true, labels: {release: prometheus}}
prometheusRule: {enabled: true, labels: {release: prometheus}}
backup: {enabled: true}
config: {log: {format: json}, mongodb: {ring_size: 96MiB}}
`

func TestChartIsFreeOfLint(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"defaults": image, "everything": everything} {
		linter := lint.All(chartPath, values(t, text), "streamer", true)
		for _, m := range linter.Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %s", name, m)
			}
		}
	}
}

// Every object has only fields that Kubernetes knows, whatever is on.
func TestChartRendersObjectsOfKubernetes(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"defaults": image, "everything": everything, "open": image + "tls: {enabled: false}\nidentities: false\netcdTLS: false\nnetworkPolicy: {enabled: false}\ntopologySpread: {topologyKey: \"\"}",
	} {
		kinds := map[string]int{}
		for _, object := range render(t, values(t, text)) {
			kinds[decode(t, object)]++
		}
		want := map[string]int{"ConfigMap": 1, "Service": 2, "PodDisruptionBudget": 1, "StatefulSet": 1}
		switch name {
		case "defaults":
			want["NetworkPolicy"] = 1
		case "everything":
			for _, kind := range []string{"Namespace", "Certificate", "ServiceMonitor", "PrometheusRule", "CronJob", "Ingress"} {
				want[kind] = 1
			}
			want["NetworkPolicy"] = 2
		}
		for kind := range kinds {
			if kinds[kind] != want[kind] {
				t.Errorf("%s: %d objects of kind %s, want %d", name, kinds[kind], kind, want[kind])
			}
			delete(want, kind)
		}
		if len(want) > 0 {
			t.Errorf("%s: there is no %v", name, want)
		}
	}
}

// The examples of values in the chart's README are values of the chart, and what they name is in
// its objects.
func TestExamplesOfValuesRender(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(chartPath + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?ms)^( *)```yaml chart\n(.*?)^ *```").FindAllStringSubmatch(string(readme), -1)
	text := ""
	for _, e := range examples {
		objects := render(t, values(t, image+regexp.MustCompile("(?m)^"+e[1]).ReplaceAllString(e[2], "")))
		for _, object := range objects {
			decode(t, object)
		}
		text += strings.Join(objects, "\n")
	}
	for _, name := range []string{"s3://my-bucket/streamer?region=eu-central-1", "name: streamer-bucket", "port: 443", "streamer.example.com", "ingress-nginx"} {
		if !strings.Contains(text, name) {
			t.Errorf("%d examples, and none gives %s", len(examples), name)
		}
	}
}

// A node starts with the configuration that the chart renders with a retained log, and writes it.
// Only the ports are others, and the folder is the test's.
func TestNodeOfTheChartRetainsItsLog(t *testing.T) {
	t.Parallel()
	demoValues, err := os.ReadFile(chartPath + "/values-demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	output(t, nil, "make", "-s", "-C", "../..", "build", "OUT="+filepath.Join(dir, "streamer"))
	output(t, nil, "go", "build", "-C", "../..", "-o", filepath.Join(dir, "demo"), "./dev/demo")
	if t.Failed() {
		t.FailNow()
	}
	mongo := start(t, nil, regexp.MustCompile(`MongoDB +(\S+)`), filepath.Join(dir, "demo"), "parts", "-mongodb", "127.0.0.1:0", "-etcd", "127.0.0.1:0")[1]
	given := values(t, image+"mongodbURI: "+mongo+"\nconfig: {retention: {store: \"file://"+dir+"/log\", interval: 1s}}")
	var config, node string
	for _, object := range render(t, chartutil.CoalesceTables(given, values(t, string(demoValues)))) {
		switch decode(t, object) {
		case "ConfigMap":
			var m corev1.ConfigMap
			if err := yaml.Unmarshal([]byte(object), &m); err != nil {
				t.Fatal(err)
			}
			config = m.Data["config.yaml"]
		case "StatefulSet":
			var s appsv1.StatefulSet
			if err := yaml.Unmarshal([]byte(object), &s); err != nil {
				t.Fatal(err)
			}
			node = s.Name + "-0"
		}
	}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	address := start(t, []string{"STREAMER_NODE_ID=" + node, "STREAMER_HTTP_LISTEN=127.0.0.1:0", "STREAMER_GRPC_LISTEN=127.0.0.1:0"},
		regexp.MustCompile(`node runs"?.*? address"?[=:]"?([0-9.:]+)`), filepath.Join(dir, "streamer"), "run", "-f", file)[1]
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	late := time.NewTimer(5 * time.Minute) // the node may have ended
	defer late.Stop()
	for len(segments(t, dir)) == 0 {
		select {
		case <-look.C:
		case <-late.C:
			t.Fatal("there is no segment")
		}
	}
	if metrics(t, "http://"+address+"/metrics")["streamer_retention_segments_written_total"] == nil {
		t.Error("the node does not count its segments")
	}
}

// segments are the files of a retained log.
func segments(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "log", "v1", "*", "*", "seg", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, ".tmp") })
}

// The plain manifests are what the chart renders.
func TestManifestsAreRendered(t *testing.T) {
	t.Parallel()
	objects := render(t, values(t, image+"createNamespace: true"))
	text := plainHead + strings.Join(objects, "\n---\n") + "\n"
	if *rewrite {
		if err := os.WriteFile(plainPath, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(plainPath); err != nil || string(got) != text {
		t.Errorf("%s is not what the chart renders: make manifests (%v)", plainPath, err)
	}
}

// The operator's rule has the groups of the rules that are tested.
func TestPrometheusRuleIsTheTestedOne(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile("../prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range render(t, values(t, image+"prometheusRule: {enabled: true}")) {
		var rule struct {
			Kind string
			Spec any
		}
		if err := yaml.Unmarshal([]byte(object), &rule); err != nil {
			t.Fatal(err)
		}
		if rule.Kind != "PrometheusRule" {
			continue
		}
		var want any
		if err := yaml.Unmarshal(rules, &want); err != nil {
			t.Fatal(err)
		}
		got, _ := yaml.Marshal(rule.Spec)
		expected, _ := yaml.Marshal(want)
		if string(got) != string(expected) {
			t.Errorf("the rule differs:\n%s", got)
		}
		return
	}
	t.Error("there is no PrometheusRule")
}

func values(t *testing.T, text string) map[string]any {
	t.Helper()
	v := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// render returns the objects that the chart gives, in the order in which Helm installs them.
func render(t *testing.T, v map[string]any) []string {
	t.Helper()
	c, files, err := rendered("streamer", v)
	if err != nil {
		t.Fatal(err)
	}
	return sorted(t, c, files)
}

// rendered returns the files that the chart gives for a release.
func rendered(release string, v map[string]any) (*chart.Chart, map[string]string, error) {
	c, err := loader.Load(chartPath)
	if err != nil {
		return nil, nil, err
	}
	all, err := chartutil.ToRenderValues(c, v, chartutil.ReleaseOptions{Name: release, Namespace: "streamer", IsInstall: true}, nil)
	if err != nil {
		return nil, nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(c, all)
	return c, files, err
}

func sorted(t *testing.T, c *chart.Chart, files map[string]string) []string {
	t.Helper()
	for name := range files {
		if strings.HasSuffix(name, ".tpl") || strings.HasSuffix(name, ".txt") {
			delete(files, name)
		}
	}
	_, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		t.Fatalf("%s: %v", c.Name(), err)
	}
	blank := regexp.MustCompile(`(?m)^[ \t]*\n`)
	var objects []string
	for _, m := range manifests {
		objects = append(objects, strings.TrimSpace(blank.ReplaceAllString(m.Content, "")))
	}
	return slices.DeleteFunc(objects, func(o string) bool { return o == "" })
}

// decode decodes an object into the type of its kind, which must know every field, and returns the
// kind. Kinds of other projects are only parsed.
func decode(t *testing.T, object string) (kind string) {
	t.Helper()
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal([]byte(object), &head); err != nil {
		t.Fatalf("%v in\n%s", err, object)
	}
	var into any
	switch head.APIVersion + "/" + head.Kind {
	case "v1/Namespace":
		into = &corev1.Namespace{}
	case "v1/ConfigMap":
		into = &corev1.ConfigMap{}
	case "v1/Service":
		into = &corev1.Service{}
	case "networking.k8s.io/v1/Ingress":
		into = &networkingv1.Ingress{}
	case "policy/v1/PodDisruptionBudget":
		into = &policyv1.PodDisruptionBudget{}
	case "networking.k8s.io/v1/NetworkPolicy":
		into = &networkingv1.NetworkPolicy{}
	case "apps/v1/StatefulSet":
		into = &appsv1.StatefulSet{}
	case "batch/v1/CronJob":
		into = &batchv1.CronJob{}
	case "cert-manager.io/v1/Certificate", "monitoring.coreos.com/v1/ServiceMonitor", "monitoring.coreos.com/v1/PrometheusRule":
		into = &map[string]any{}
	default:
		t.Errorf("what is %s %s?", head.APIVersion, head.Kind)
		return head.Kind
	}
	if err := yaml.UnmarshalStrict([]byte(object), into); err != nil {
		t.Errorf("%v in\n%s", err, object)
	}
	return head.Kind
}
