{{/* The name of everything, another one for each release, so that two fit into a namespace. A StatefulSet's name may have 52 characters. */}}
{{- define "streamer.name" -}}
{{- $name := .Values.fullnameOverride | default (eq .Release.Name "streamer" | ternary "streamer" (printf "%s-streamer" .Release.Name)) -}}
{{- if gt (len $name) 52 }}{{ fail (printf "the name %s is too long: set fullnameOverride" $name) }}{{ end -}}
{{- $name -}}
{{- end -}}

{{/* The name of the backup. A CronJob's may have 52 characters; a hash tells shortened ones apart. */}}
{{- define "streamer.backup" -}}
{{- $name := include "streamer.name" . -}}
{{- if gt (len $name) 45 }}{{ $name = printf "%s-%s" ($name | trunc 36 | trimSuffix "-") ($name | sha256sum | trunc 8) }}{{ end -}}
{{- $name }}-backup
{{- end -}}

{{- define "streamer.selector" -}}
app.kubernetes.io/name: streamer
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The labels of the nodes' pods, by which they are selected. */}}
{{- define "streamer.nodes" -}}
{{ include "streamer.selector" . }}
app.kubernetes.io/component: node
{{- end -}}

{{- define "streamer.labels" -}}
{{ include "streamer.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "streamer.image" -}}
{{ required "image.repository: name the registry's image; the chart's README says how to copy it there" .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ default .Chart.AppVersion .Values.image.tag }}{{ end }}
{{- end -}}

{{- define "streamer.secret" -}}{{ .Values.secretName | default (include "streamer.name" .) }}{{- end -}}
{{- define "streamer.tlsSecret" -}}{{ .Values.tls.secretName | default (printf "%s-tls" (include "streamer.name" .)) }}{{- end -}}
{{/* Whether anything is in the secret. */}}
{{- define "streamer.hasSecret" -}}{{ if or (not .Values.mongodbURI) .Values.identities .Values.etcdTLS }}yes{{ end }}{{- end -}}

{{- define "streamer.probePort" -}}{{ if .Values.probes.port }}probes{{ else }}http{{ end }}{{- end -}}
{{- define "streamer.probeScheme" -}}{{ if and .Values.tls.enabled (not .Values.probes.port) }}HTTPS{{ else }}HTTP{{ end }}{{- end -}}

{{- define "streamer.config" -}}
{{- $tls := dict -}}
{{- if .Values.tls.enabled }}{{ $tls = dict "tls" (dict "cert_file" "/etc/streamer/tls/tls.crt" "key_file" "/etc/streamer/tls/tls.key") }}{{ else }}{{ $tls = dict "insecure" true }}{{ end -}}
{{- $http := merge (dict "listen" ":8080") $tls -}}
{{- if .Values.probes.port }}{{ $http = merge (dict "probes_listen" (printf ":%d" (int .Values.probes.port)) "insecure" true) $http }}{{ end -}}
{{- $base := dict
      "cluster" (dict "id" (include "streamer.name" .) "expected_nodes" (int .Values.replicas))
      "mongodb" (ternary (dict "uri" .Values.mongodbURI) (dict "uri_file" "/etc/streamer/secret/mongodb-uri") (ne .Values.mongodbURI ""))
      "grpc" (merge (dict "listen" ":9090") $tls)
      "http" $http -}}
{{- if .Values.etcdTLS }}{{ $_ := set $base "etcd" (dict "tls" (dict
      "ca_file" "/etc/streamer/secret/etcd-ca.crt" "cert_file" "/etc/streamer/secret/etcd.crt" "key_file" "/etc/streamer/secret/etcd.key")) }}{{ end -}}
{{- if and .Values.tls.enabled .Values.tls.authority (not .Values.probes.port) }}{{ $_ := set $base "supervisor" (dict "ca_file" (printf "/etc/streamer/tls/%s" .Values.tls.authority)) }}{{ end -}}
{{- if .Values.identities }}{{ $_ := set $base "access" (dict "identities_file" "/etc/streamer/secret/identities") }}{{ end -}}
{{- toYaml (merge (deepCopy .Values.config) $base) -}}
{{- end -}}

{{- define "streamer.egress" -}}
{{- with .Values.networkPolicy -}}
- to: # names
    {{- toYaml .dns | nindent 4 }}
  ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
- to: # MongoDB
    {{- toYaml .mongodb | nindent 4 }}
  ports:
    - {protocol: TCP, port: {{ .mongodbPort }}}
- to: # etcd
    {{- toYaml .etcd | nindent 4 }}
  ports:
    - {protocol: TCP, port: {{ .etcdPort }}}
{{- with .extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end -}}
{{- end -}}
