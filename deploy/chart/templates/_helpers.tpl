{{- define "streamer.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ default .Chart.AppVersion .Values.image.tag }}{{ end }}
{{- end -}}

{{- define "streamer.probePort" -}}{{ if .Values.probes.port }}probes{{ else }}http{{ end }}{{- end -}}
{{- define "streamer.probeScheme" -}}{{ if and .Values.tls.enabled (not .Values.probes.port) }}HTTPS{{ else }}HTTP{{ end }}{{- end -}}

{{- define "streamer.config" -}}
{{- $tls := dict -}}
{{- if .Values.tls.enabled }}{{ $tls = dict "tls" (dict "cert_file" "/etc/streamer/tls/tls.crt" "key_file" "/etc/streamer/tls/tls.key") }}{{ else }}{{ $tls = dict "insecure" true }}{{ end -}}
{{- $http := merge (dict "listen" ":8080") $tls -}}
{{- if .Values.probes.port }}{{ $http = merge (dict "probes_listen" (printf ":%d" (int .Values.probes.port)) "insecure" true) $http }}{{ end -}}
{{- $base := dict
      "cluster" (dict "expected_nodes" (int .Values.replicas))
      "mongodb" (dict "uri_file" "/etc/streamer/secret/mongodb-uri")
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
